"""What the site adds to mkdocs: folders in the menu, pages from outside of docs/, GitHub's Markdown, notebooks."""

from docs.site import accessible, markdown, notebooks, places, reference
from mkdocs.structure.files import File, Files


def on_config(config):
    """Put the pages of folders in the menu."""
    config.nav = places.menu(config.nav, sorted(reference.pages()))
    return config


def on_files(files: Files, config):
    """Add the pages of the project, listings of folders with data, and files that a page leads to."""
    for file in [f for f in files if f.src_uri.endswith(".ipynb")]:
        files.remove(file)
        page = notebooks.page(places.DOCS / file.src_uri)
        files.append(File.generated(config, f"{file.src_uri.removesuffix('.ipynb')}.md", content=page))
    for name, path in places.outside().items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for name, text in (places.listings() | reference.pages()).items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(text, page, config, files):
    """Read what GitHub reads: names of files on fences, and links to anything in the repository."""
    return markdown.portable(text, page.file.src_uri)


def on_post_page(output, page, config):
    """Mend what keeps a page from being read by all."""
    return accessible.mended(output)
