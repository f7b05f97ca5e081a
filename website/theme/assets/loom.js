// What can be scrolled can be reached by the keyboard.
const reach = () => {
  for (const one of document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap"))
    if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
    else one.removeAttribute("tabindex");
};
addEventListener("load", reach);
addEventListener("resize", reach);
