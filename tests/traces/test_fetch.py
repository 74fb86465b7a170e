"""Published traces over a real HTTP server, which behaves as badly as real ones do."""

import hashlib
import io
import resource
import shutil
import socket
import tarfile
import threading
import time
from collections import namedtuple
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request

import pytest

import fleetlab
from fleetlab.traces.public.download import File, Patience, _Redirects
from fleetlab.traces.public.fetch import PUBLISHED, PublicTrace, fetch, gather

HASTY = Patience(timeout=0.5, tries=3, pause=0.01)
DATA = bytes(range(256)) * 2000  # half a megabyte


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Shelf(ThreadingHTTPServer):
    """Serves `files`; each request may take a trick from `tricks`, and is written down in `asked`."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.tricks, self.asked, self.etag = {"data.bin": DATA}, [], [], '"one"'
        self.base = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        pass  # a client that hangs up is what is tested


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5

    def log_message(self, *_):
        pass

    def do_GET(self):
        shelf = self.server
        shelf.asked.append((self.path, self.headers.get("Range"), self.headers.get("If-Range")))
        trick = shelf.tricks.pop(0) if shelf.tricks else None
        if callable(trick):
            trick = trick(shelf)
        if isinstance(trick, int):
            return self.send_error(trick)
        if isinstance(trick, str) and "://" in trick:
            return self.moved(trick)
        data = shelf.files.get(self.path.rsplit("/", 1)[1])
        return self.send_error(404) if data is None else self.give(data, trick)

    def moved(self, place):
        self.send_response(302)
        self.send_header("Location", place)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def give(self, data, trick):
        begin = self.begin(trick)
        if begin > len(data):
            return self.send_error(416)
        piece = data[begin:]
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        if self.server.etag:
            self.send_header("ETag", self.server.etag)
        if trick != "no length":
            self.send_header("Content-Length", str(len(piece)))
        self.send_header("Content-Type", "text/html" if trick == "page" else "application/octet-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(piece[: len(piece) // 2] if trick in ("cut", "stall") else piece)
        if trick == "stall":
            self.wfile.flush()
            time.sleep(1.5)
        return None

    def begin(self, trick):
        asked, mark = self.headers.get("Range"), self.headers.get("If-Range")
        if trick == "careless":
            mark = None
        if asked is None or trick == "no ranges" or (mark is not None and mark != self.server.etag):
            return 0
        return int(asked.removeprefix("bytes=").removesuffix("-"))


@pytest.fixture
def shelf(monkeypatch):
    """A server on this machine, whatever proxy the environment names."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Shelf()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def bring(shelf, tmp_path):
    """Fetch one file from the shelf."""

    def run(sha256=None, *, name="data.bin", base=None, progress=lambda *_: None, **about):
        published = PublicTrace("small", (File(f"https://owner.example/{name}", sha256, **about),))
        return gather(published, into=tmp_path, base=base or shelf.base, progress=progress, patience=HASTY)

    return run


def only(fetched):
    return fetched.files.row(0, named=True)


# -- as it should be ----------------------------------------------------------------------------------------------


def test_a_file_is_brought_and_proved(bring, tmp_path):
    fetched = bring(sha(DATA))
    assert only(fetched) == {
        "file": "data.bin",
        "bytes": len(DATA),
        "state": "fetched",
        "check": "as published",
        "sha256": sha(DATA),
    }
    assert fetched.paths == [tmp_path / "data.bin"]


def test_nothing_but_the_file_is_left(bring, tmp_path):
    bring(sha(DATA))
    assert [(p.name, p.read_bytes() == DATA) for p in tmp_path.iterdir()] == [("data.bin", True)]


def test_a_file_without_a_published_checksum_is_said_to_be_unverified(bring):
    assert only(bring())["check"] == "not verified: no published checksum"


def test_a_file_that_is_there_is_not_asked_for_again(bring, shelf, tmp_path):
    (tmp_path / "data.bin").write_bytes(DATA)
    assert only(bring(sha(DATA)))["state"] == "already there"
    assert shelf.asked == []


def test_another_file_in_its_place_is_replaced_once_the_right_one_is_here(bring, tmp_path):
    (tmp_path / "data.bin").write_bytes(b"something else")
    assert only(bring(sha(DATA)))["state"] == "replaced"
    assert (tmp_path / "data.bin").read_bytes() == DATA


def test_what_is_there_stays_until_the_right_one_is_here(bring, tmp_path):
    (tmp_path / "data.bin").write_bytes(b"something else")
    with pytest.raises(fleetlab.TraceError, match="not the published file"):
        bring(sha(b"neither"))
    assert (tmp_path / "data.bin").read_bytes() == b"something else"


def test_progress_is_told_in_bytes_and_ends_with_all_of_it(bring):
    told = []
    bring(sha(DATA), progress=lambda *what: told.append(what))
    assert told[-1] == ("data.bin", len(DATA), 1.0)


def packed(data):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        member = tarfile.TarInfo("table.csv")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def test_the_table_in_an_archive_is_proved_too(bring, shelf):
    shelf.files["table.tar.gz"] = archive = packed(b"a,b\n1,2\n")
    assert only(bring(sha(archive), name="table.tar.gz", table=sha(b"a,b\n1,2\n")))["check"] == "as published"


def test_an_archive_with_another_table_is_refused(bring, shelf, tmp_path):
    shelf.files["table.tar.gz"] = packed(b"a,b\n1,2\n")
    with pytest.raises(fleetlab.TraceError, match="SHA-256 of the table in it"):
        bring(name="table.tar.gz", table=sha(b"a,b\n9,9\n"))
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_archive_is_refused(bring, shelf):
    shelf.files["table.tar.gz"] = packed(b"a,b\n1,2\n" * 1000)[:-20]
    with pytest.raises(fleetlab.TraceError, match="the archive is damaged"):
        bring(name="table.tar.gz", table=sha(b"a,b\n1,2\n" * 1000))


# -- connections that break ---------------------------------------------------------------------------------------


def test_a_cut_connection_is_gone_on_with(bring, shelf):
    shelf.tricks = ["cut"]
    assert only(bring(sha(DATA)))["check"] == "as published"
    assert [asked[1:] for asked in shelf.asked] == [(None, None), (f"bytes={len(DATA) // 2}-", '"one"')]


def test_a_server_that_stalls_is_left_and_gone_on_with(bring, shelf):
    shelf.tricks = ["stall"]
    assert only(bring(sha(DATA)))["check"] == "as published"
    assert shelf.asked[1][1] == f"bytes={len(DATA) // 2}-"


def test_what_came_is_kept_when_patience_ends(bring, shelf, tmp_path):
    shelf.tricks = ["cut"] * 3
    with pytest.raises(fleetlab.TraceError, match="gave up after 3 tries") as e:
        bring(sha(DATA))
    assert (tmp_path / "data.bin.part").stat().st_size == len(DATA) * 7 // 8
    assert "run the same command again" in e.value.hint


def test_a_later_run_goes_on_where_an_earlier_one_gave_up(bring, shelf):
    shelf.tricks = ["cut"] * 3
    with pytest.raises(fleetlab.TraceError):
        bring(sha(DATA))
    bring(sha(DATA))
    assert shelf.asked[-1][1] == f"bytes={len(DATA) * 7 // 8}-"


def test_an_interrupted_run_keeps_what_came(bring, shelf, tmp_path):
    def stop(_what, came, _share):
        if came > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring(sha(DATA), progress=stop)
    kept = (tmp_path / "data.bin.part").stat().st_size
    bring(sha(DATA))
    assert kept > 100_000
    assert shelf.asked[-1][1] == (f"bytes={kept}-" if kept < len(DATA) else None)


def test_a_file_that_came_whole_but_unproved_is_not_asked_for_again(bring, shelf, tmp_path):
    bring(sha(DATA))
    (tmp_path / "data.bin").rename(tmp_path / "data.bin.part")
    note = f'{{"address": "{shelf.base}/data.bin", "mark": null, "size": {len(DATA)}}}'
    (tmp_path / "data.bin.part.json").write_text(note)
    assert only(bring(sha(DATA)))["state"] == "fetched"
    assert len(shelf.asked) == 1


def test_a_server_without_ranges_makes_it_start_over(bring, shelf):
    shelf.tricks = ["cut", "no ranges"]
    assert only(bring(sha(DATA)))["check"] == "as published"


@pytest.mark.parametrize("trick", [None, "careless"])
def test_another_version_on_the_server_makes_it_start_over(bring, shelf, trick):
    def publish_anew(shelf):
        shelf.etag, shelf.files["data.bin"] = '"two"', DATA[::-1]
        return trick

    shelf.tricks = ["cut", publish_anew]
    assert only(bring())["sha256"] == sha(DATA[::-1])


def test_a_part_longer_than_the_file_makes_it_start_over(bring, shelf, tmp_path):
    (tmp_path / "data.bin.part").write_bytes(DATA + b"more")
    note = f'{{"address": "{shelf.base}/data.bin", "mark": "\\"one\\"", "size": null}}'
    (tmp_path / "data.bin.part.json").write_text(note)
    assert only(bring(sha(DATA)))["check"] == "as published"
    assert len(shelf.asked) == 2  # the first was answered with 416


@pytest.mark.parametrize("note", ["", "{", "[]", "null", '{"address": 1, "mark": 2, "size": "x"}'])
def test_a_part_of_unknown_origin_is_not_gone_on_with(bring, shelf, tmp_path, note):
    (tmp_path / "data.bin.part").write_bytes(b"from somewhere")
    (tmp_path / "data.bin.part.json").write_text(note)
    assert only(bring())["sha256"] == sha(DATA)
    assert shelf.asked[0][1] is None


def test_without_a_mark_only_a_checksum_allows_to_go_on(bring, shelf):
    shelf.etag = None
    shelf.tricks = ["cut"]
    bring()
    assert [asked[1] for asked in shelf.asked] == [None, None]


def test_a_server_that_tells_no_length_is_believed_up_to_the_checksum(bring, shelf):
    shelf.tricks = ["no length"]
    assert only(bring(sha(DATA)))["check"] == "as published"


# -- answers that are none ----------------------------------------------------------------------------------------


def test_a_wrong_file_is_refused_and_removed(bring, tmp_path):
    with pytest.raises(fleetlab.TraceError, match="is not the published file: SHA-256 is"):
        bring(sha(b"another"))
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_size_is_refused_before_it_comes(bring, tmp_path):
    with pytest.raises(fleetlab.TraceError, match="is not the published file"):
        bring(sha(DATA), size=7)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_not_asked_for_twice(bring, shelf):
    with pytest.raises(fleetlab.TraceError, match="the server answered 404 Not Found"):
        bring(name="gone.bin")
    assert len(shelf.asked) == 1


def test_a_server_in_trouble_is_asked_again(bring, shelf):
    shelf.tricks = [500, 503]
    assert only(bring(sha(DATA)))["check"] == "as published"


def test_a_server_in_trouble_is_not_asked_for_ever(bring, shelf):
    shelf.tricks = [500] * 9
    with pytest.raises(fleetlab.TraceError, match=r"gave up after 3 tries in a row at .* the server answered 500"):
        bring(sha(DATA))


def test_a_web_page_instead_of_the_file_is_refused(bring, shelf):
    shelf.tricks = ["page"]
    with pytest.raises(fleetlab.TraceError, match="received a web page instead of the file"):
        bring()


def test_a_server_that_moved_the_file_is_followed(bring, shelf):
    shelf.tricks = [f"{shelf.base}/elsewhere/data.bin"]
    bring(sha(DATA))
    assert [asked[0] for asked in shelf.asked] == ["/data.bin", "/elsewhere/data.bin"]


@pytest.mark.parametrize("place", ["file:///etc/hostname", "ftp://127.0.0.1/data.bin"])
def test_a_server_that_leads_off_the_web_is_not_followed(bring, shelf, tmp_path, place):
    shelf.tricks = [place]
    with pytest.raises(fleetlab.TraceError):
        bring()
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_leads_out_of_tls_is_not_followed():
    asked = Request("https://owner.example/data.bin")
    with pytest.raises(fleetlab.TraceError, match="without HTTPS"):
        _Redirects().redirect_request(asked, io.BytesIO(), 302, "Found", Message(), "http://owner.example/data.bin")


def test_servers_that_send_in_circles_are_left(bring, shelf):
    shelf.tricks = [f"{shelf.base}/data.bin"] * 50
    with pytest.raises(fleetlab.TraceError, match="the server answered 302"):
        bring()


def test_nobody_there_is_told_with_what_to_do_by_hand(bring, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(fleetlab.TraceError, match=r"cannot reach 127\.0\.0\.1: Connection refused") as e:
        bring(base=base)
    assert f"download {base}/data.bin elsewhere and save it as {tmp_path / 'data.bin'}" in e.value.hint


def test_an_unknown_host_is_told_at_once(bring):
    with pytest.raises(fleetlab.TraceError, match=r"cannot reach nowhere\.invalid"):
        bring(base="http://nowhere.invalid")


@pytest.mark.parametrize("base", ["file:///etc", "ftp://host/x", "no address", "http://", "http://[::1", "http://a b"])
def test_what_is_no_address_is_refused(bring, base):
    with pytest.raises(fleetlab.TraceError):
        bring(base=base)


# -- the disk -----------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_fit_is_not_begun(bring, monkeypatch, tmp_path):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(100, 90, 10))
    with pytest.raises(
        fleetlab.TraceError, match=r"not enough disk space for data\.bin: 512,000 bytes needed, 10 free"
    ):
        bring(sha(DATA))
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_is_told_and_what_came_is_kept(bring, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
        with pytest.raises(fleetlab.TraceError, match="cannot write") as e:
            bring(sha(DATA))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "it resumes" in e.value.hint
    assert (tmp_path / "data.bin.part").stat().st_size == 200_000
    assert only(bring(sha(DATA)))["check"] == "as published"


@pytest.mark.parametrize("folder", ["file", "nul\0nul", "x" * 999])
def test_a_folder_that_cannot_be_is_told(tmp_path, folder):
    (tmp_path / "file").write_text("")
    with pytest.raises(fleetlab.TraceError, match="cannot write"):
        gather(PublicTrace("small", (File("https://owner.example/data.bin"),)), into=tmp_path / folder)


def test_a_folder_in_the_place_of_a_file_is_told(bring, tmp_path):
    (tmp_path / "data.bin").mkdir()
    with pytest.raises(fleetlab.TraceError, match="not a regular file"):
        bring()


def test_nothing_is_written_through_a_link_out_of_the_folder(bring, tmp_path, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "precious"
    outside.write_text("precious")
    (tmp_path / "data.bin.part").symlink_to(outside)
    (tmp_path / "data.bin.part.json").symlink_to(outside)
    bring(sha(DATA))
    assert outside.read_text() == "precious"


@pytest.mark.parametrize("address", ["https://owner.example/", "https://owner.example/a/..", "https://owner.example"])
def test_an_address_without_a_file_name_is_refused(tmp_path, address):
    with pytest.raises(fleetlab.TraceError, match="no file name in the address"):
        gather(PublicTrace("small", (File(address),)), into=tmp_path)


# -- what is published --------------------------------------------------------------------------------------------


def test_an_unknown_trace_is_refused_with_the_nearest(tmp_path):
    with pytest.raises(
        fleetlab.TraceError, match=r"no published trace by that name: `pai2021`; did you mean pai2020\?"
    ):
        fetch("pai2021", into=tmp_path)


def test_a_mirror_of_a_published_trace_is_held_to_its_checksums(shelf, tmp_path):
    shelf.files["disaggregated_DLRM_trace.csv"] = b"not that trace"
    with pytest.raises(fleetlab.TraceError, match="is not the published file"):
        fetch("dlrm2025", into=tmp_path, base=shelf.base)


@pytest.mark.parametrize("published", PUBLISHED.values(), ids=PUBLISHED)
def test_every_published_file_has_an_address_of_its_own_and_a_whole_checksum(published):
    names = [file.name for file in published.files]
    sums = [s for file in published.files for s in (file.sha256, file.table) if s is not None]
    assert len(set(names)) == len(names)
    assert all(len(s) == 64 and set(s) <= set("0123456789abcdef") for s in sums)
    assert all(file.address.startswith("https://") for file in published.files)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("openb2023", "alibaba-openb-v2023"),
        ("dlrm2025", "alibaba-dlrm-v2025"),
        ("spot2026", "alibaba-spot-v2026"),
        ("genai2026", "alibaba-genai-v2026"),
        ("pai2020", "alibaba-pai-v2020/headers"),
    ],
)
def test_the_real_files_have_the_checksums_listed(data, name, folder):
    there = [file for file in PUBLISHED[name].files if (data / folder / file.name).exists() and file.sha256]
    assert there
    assert all(sha((data / folder / file.name).read_bytes()) == file.sha256 for file in there)
