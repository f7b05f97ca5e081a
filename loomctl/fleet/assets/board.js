"use strict";

// Follows the fleet: asks for the page anew, and takes over what differs. What is chosen, focused, scrolled stays so.
(() => {
  const EVERY = 3000;
  const PARTS = ["header", "nav", "main"];
  const NAMED = "id aria-label href".split(" ");
  let asks = false;

  // What has the focus is found again by what it is called, and by which of those it is.
  function called(one) {
    const name = NAMED.find((key) => one.hasAttribute(key));
    const same = name ? `${one.tagName}[${name}="${CSS.escape(one.getAttribute(name))}"]` : one.tagName;
    return { same, at: [...document.querySelectorAll(same)].indexOf(one) };
  }

  function put(fresh) {
    const held = document.activeElement;
    const place = held && held !== document.body ? called(held) : null;
    const boxes = new Map([...document.querySelectorAll(".scroll")].map((one) => [one.getAttribute("aria-label"), one.scrollLeft]));
    const [x, y] = [scrollX, scrollY];
    for (const part of PARTS) {
      const [old, now] = [document.querySelector(`body > ${part}`), fresh.querySelector(`body > ${part}`)];
      if (old && now && old.innerHTML !== now.innerHTML) old.replaceChildren(...now.childNodes);
      else if (old && !now) old.remove();
      else if (now && !old) document.querySelector("main").before(now);
    }
    document.title = fresh.title;
    for (const one of document.querySelectorAll(".scroll")) one.scrollLeft = boxes.get(one.getAttribute("aria-label")) || 0;
    if (place && !held.isConnected) {
      const found = document.querySelectorAll(place.same)[place.at];
      if (found) found.focus({ preventScroll: true });
    }
    scrollTo({ left: x, top: y, behavior: "instant" });
  }

  function say(words) {
    const pulse = document.getElementById("pulse");
    pulse.textContent = words;
    pulse.classList.toggle("lost", words !== "live");
  }

  async function follow() {
    if (asks || document.hidden || !getSelection().isCollapsed) return; // who copies a command is not disturbed
    asks = true;
    try {
      const answer = await fetch(location.pathname, { cache: "no-store", redirect: "error" });
      const text = await answer.text();
      if (answer.ok) put(new DOMParser().parseFromString(text, "text/html"));
      say(answer.ok ? "live" : "not live: the queue gives no answer");
    } catch {
      say("not live: `loomctl fleet board` has ended");
    } finally {
      asks = false;
    }
  }

  setInterval(follow, EVERY);
  addEventListener("visibilitychange", follow);
})();
