"use strict";

// What the page can do beyond being read: the reader's own time, events that are chosen and leafed through, stages that
// open where a link leads to them. Text is set as text, never as markup.
(() => {
  const PAGE = 100;
  const find = (identity) => document.getElementById(identity);

  const two = (number) => String(number).padStart(2, "0");

  function local(stamp) {
    const at = new Date(stamp);
    const day = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join("-");
    return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  }

  const utc = (stamp) => `${stamp.slice(0, 10)} ${stamp.slice(11, 19)}`;

  const known = (stamp) => !Number.isNaN(new Date(stamp).getTime());

  const clock = find("clock");
  const isLocal = () => clock.getAttribute("aria-pressed") === "true";

  function tellTimes(root) {
    for (const one of root.querySelectorAll("time")) {
      const stamp = one.getAttribute("datetime");
      if (!known(stamp)) continue;
      one.firstChild.data = isLocal() ? local(stamp) : utc(stamp);
      one.lastElementChild.textContent = isLocal() ? "" : " UTC";
      one.title = isLocal() ? `${utc(stamp)} UTC` : `${local(stamp)} local time`;
    }
    for (const one of root.querySelectorAll("[data-at]")) {
      const stamp = one.getAttribute("data-at");
      one.textContent = (isLocal() ? local(stamp) : utc(stamp)).slice(0, 16);
    }
    for (const one of root.querySelectorAll(".zone-name")) one.textContent = isLocal() ? "Local time" : "UTC";
  }

  clock.hidden = false;
  clock.addEventListener("click", () => {
    clock.setAttribute("aria-pressed", String(!isLocal()));
    tellTimes(document);
  });
  tellTimes(document);

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("main details:not([open])")];
    for (const one of closed) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of closed) one.open = false;
  });

  // ---- Events. A row is [number, time, kind, step, session, what it says, its properties].

  const data = JSON.parse(find("event-data").textContent);
  const body = find("event-table").tBodies[0];
  const choice = { kind: find("by-kind"), step: find("by-step"), session: find("by-session") };
  const column = { kind: 2, step: 3, session: 4 };
  const names = { kind: data.kinds, step: data.steps, session: data.sessions };
  const sought = find("by-text");
  let chosen = data.rows;
  let first = Math.max(0, chosen.length - PAGE);

  for (const key of Object.keys(choice)) {
    const order = names[key].map((name, index) => ({ name, index })).filter((one) => one.name);
    order.sort((one, other) => (one.name < other.name ? -1 : 1));
    if (key === "kind") addGroups(order);
    for (const one of order) choice[key].append(option(one.name, String(one.index)));
    choice[key].closest("label").hidden = order.length === 0;
  }

  function addGroups(order) {
    const groups = new Set(order.map((one) => one.name.split(".")[0]));
    for (const name of groups) choice.kind.append(option(`${name}.*`, `${name}.`));
  }

  function option(name, value) {
    const made = document.createElement("option");
    made.textContent = name.slice(0, 80);
    made.value = value;
    return made;
  }

  function holds(row, key) {
    const value = choice[key].value;
    if (value === "") return true;
    return value.endsWith(".") ? names[key][row[column[key]]].startsWith(value) : row[column[key]] === Number(value);
  }

  function choose() {
    const text = sought.value.trim().toLowerCase();
    const keys = Object.keys(choice).filter((key) => choice[key].value !== "");
    chosen = data.rows.filter((row) => {
      if (!keys.every((key) => holds(row, key))) return false;
      if (!text) return true;
      const told = `${row[0]} ${row[1]} ${data.kinds[row[2]]} ${data.steps[row[3]]} ${row[5]} ${row[6]}`;
      return told.toLowerCase().includes(text);
    });
    first = Math.max(0, chosen.length - PAGE);
    show();
  }

  function cell(tag, label, ...content) {
    const made = document.createElement(tag);
    if (tag === "th") made.scope = "row";
    made.dataset.label = label;
    made.append(...content);
    return made;
  }

  function element(tag, text, kind) {
    const made = document.createElement(tag);
    made.textContent = text;
    if (kind) made.className = kind;
    return made;
  }

  function time(stamp) {
    if (!known(stamp)) return element("span", stamp);
    const made = element("time", utc(stamp));
    made.dateTime = stamp;
    made.append(element("span", " UTC", "zone"));
    return made;
  }

  function said(row) {
    const made = document.createElement("div");
    const step = data.steps[row[3]];
    const line = [row[5], step].filter(Boolean).join(" · ");
    if (!row[6]) {
      made.textContent = line;
      return made;
    }
    const more = document.createElement("details");
    more.append(element("summary", line || "properties"));
    more.addEventListener("toggle", () => {
      if (more.open && more.childElementCount === 1) {
        const pre = element("pre", row[6]);
        pre.tabIndex = 0;
        more.append(pre);
      }
    });
    made.append(more);
    return made;
  }

  function show() {
    const page = chosen.slice(first, first + PAGE);
    const rows = page.map((row) => {
      const made = document.createElement("tr");
      const name = element("code", data.kinds[row[2]], "term");
      made.append(cell("th", "#", String(row[0])), cell("td", "When", time(row[1])));
      made.append(cell("td", "Event", name), cell("td", "Details", said(row)));
      return made;
    });
    body.replaceChildren(...rows);
    tellTimes(body);
    const all = chosen.length === data.rows.length ? "" : ` of ${data.rows.length.toLocaleString("en")}`;
    const range = page.length ? `${(first + 1).toLocaleString("en")} to ${(first + page.length).toLocaleString("en")} of ` : "";
    find("shown").textContent = `${range}${chosen.length.toLocaleString("en")} events${all ? ` (chosen from${all.slice(3)})` : ""}`;
    find("page-before").disabled = first === 0;
    find("page-after").disabled = first + PAGE >= chosen.length;
  }

  function turn(by) {
    first = Math.min(Math.max(0, first + by), Math.max(0, chosen.length - 1));
    show();
  }

  let waiting = 0;
  sought.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(choose, 120);
  });
  for (const one of Object.values(choice)) one.addEventListener("change", choose);
  find("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    choose();
  });
  find("clear-filter").addEventListener("click", () => {
    find("filter").reset();
    choose();
  });
  find("page-before").addEventListener("click", () => turn(-PAGE));
  find("page-after").addEventListener("click", () => turn(PAGE));
  find("filter").hidden = data.rows.length === 0;
  find("pages").hidden = data.rows.length <= 1;
  show();

  // ---- Where a link leads to a stage, the stage opens. An address may say anything: it comes last.

  function named(hash) {
    try {
      return decodeURIComponent(hash.slice(1));
    } catch {
      return hash.slice(1);
    }
  }

  function openTarget() {
    const target = location.hash ? find(named(location.hash)) : null;
    for (let one = target; one; one = one.parentElement) {
      if (one.tagName === "DETAILS") one.open = true;
    }
    if (target) target.scrollIntoView();
  }

  addEventListener("hashchange", openTarget);
  openTarget();
})();
