// What scrolls sideways can be reached with the keyboard: code and tables that are wider than the screen.
function reachable() {
  const boxes = ".md-typeset__scrollwrap, .md-typeset pre > code, .md-typeset p:has(> img), .notebook-output";
  for (const box of document.querySelectorAll(boxes)) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
function mend() {
  reachable();
  for (const nav of document.querySelectorAll(".md-code__nav")) nav.setAttribute("role", "none"); // buttons, no menu
}
addEventListener("load", () => requestAnimationFrame(mend));
addEventListener("resize", reachable);
