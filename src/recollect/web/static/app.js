// The page's own script: it gets a token, fetches each page with it, and listens to the keyboard.
"use strict";
(() => {
  const page = document.getElementById("page");
  const box = document.getElementById("q");
  const TOKEN = "recollect.token";
  const THEME = "recollect.theme";
  const isNarrow = { facets: matchMedia("(max-width: 52rem)"), contents: matchMedia("(max-width: 68rem)") };
  let token = sessionStorage.getItem(TOKEN);

  // Only htmx turns text into elements, by this policy, and never an element that could run.
  const policy = window.trustedTypes?.createPolicy("recollect", {
    createHTML(text) {
      if (/<(script|iframe|object|embed|base|meta|link)\b/i.test(text)) throw new TypeError("refused markup");
      return text;
    },
  });
  htmx.registerExtension("recollect", { init: (api) => policy && api.initSecurity(policy) });
  document.addEventListener("htmx:config:request", (event) => {
    event.detail.ctx.request.headers.Authorization = `Bearer ${token}`;
  });
  document.addEventListener("htmx:response:error", (event) => {
    if (event.detail.ctx.response.status === 401) lock();
  });
  let isLost = false; // the server did not answer what the user asked for
  document.addEventListener("htmx:error", (event) => {
    if (event.detail.ctx?.response) return;
    isLost = page.getAttribute("aria-busy") === "true";
    if (isLost) explain("Recollect does not answer. Run `recollect web` in a terminal; this page then continues.");
    else say("Recollect does not answer");
  });

  const ask = (path, options = {}) =>
    fetch(path, { ...options, headers: { Authorization: `Bearer ${token}`, ...options.headers } });

  // A tab that has the token admits this one by the number of its visit, whose secret only a page of this server has.
  // The token itself is in no message: a page that another program served here may be listening.
  const visit = document.querySelector("meta[name=visit]").content;
  const channel = new BroadcastChannel("recollect");
  channel.onmessage = async ({ data }) => {
    if (data === "opened" && !(await accept(token))) location.reload(); // as a page of the server that runs now
    if (!data.asks || !token) return;
    const answer = await ask("/admit", { method: "POST", headers: { "Recollect-Visit": data.asks } });
    if (answer.ok) channel.postMessage({ admitted: data.asks });
  };
  const fromOtherTab = () =>
    new Promise((resolve) => {
      const [number, other] = [visit.split(".")[0], new BroadcastChannel("recollect")];
      const finish = (code) => { other.close(); resolve(code && exchange(code)); };
      other.onmessage = ({ data }) => data.admitted === number && finish(visit);
      if (number) other.postMessage({ asks: number });
      setTimeout(finish, number ? 300 : 0, null);
    });
  async function exchange(code) {
    const answer = await fetch("/exchange", { method: "POST", headers: { "Recollect-Code": code } });
    return answer.ok ? (await answer.json()).token : null;
  }
  async function accept(offered) {
    if (!offered) return false;
    const headers = { Accept: "application/json", Authorization: `Bearer ${offered}` };
    if (!(await fetch("/settings", { headers })).ok) return false; // of a server that was stopped
    sessionStorage.setItem(TOKEN, (token = offered));
    return true;
  }
  async function unlock() {
    const code = location.hash.match(/^#code=([\w-]+)$/)?.[1];
    if (code) history.replaceState(null, "", location.pathname + location.search);
    if ((await accept(token)) || (await accept(await fromOtherTab()))) return true;
    token = null;
    if (!code || !(await accept(await exchange(code)))) return false;
    channel.postMessage("opened"); // tabs of an earlier server continue with this one
    return true;
  }
  function lock() {
    token = null;
    sessionStorage.removeItem(TOKEN);
    explain("This page is locked. Run `recollect web` in a terminal to open it.");
  }
  function explain(message) {
    const text = document.createElement("p");
    text.className = "empty";
    text.textContent = message;
    text.setAttribute("role", "alert");
    page.replaceChildren(text);
    page.removeAttribute("aria-busy");
  }

  // Pages. Each link fetches its page into <main>; the address follows.
  const here = () => location.pathname + location.search;
  let loads = 0;
  async function show(path, { push = false, replace = false, isQuiet = false, left = {} } = {}) {
    const number = ++loads;
    const [target, anchor] = path.split("#");
    if (push) {
      history.replaceState({ top: scrollY, row: document.activeElement?.getAttribute("href") }, ""); // for the way back
      history.pushState(null, "", path);
    }
    if (replace) history.replaceState(null, "", path);
    isLost = false;
    if (!isQuiet) page.setAttribute("aria-busy", "true");
    await htmx.ajax("GET", target, { target: "#page", swap: isQuiet ? "innerMorph" : "innerHTML" });
    if (number !== loads || isLost) return;
    page.removeAttribute("aria-busy");
    if (token) arrive(anchor, isQuiet, left);
  }
  function arrive(anchor, isQuiet, left) {
    const first = `/${location.pathname.split("/")[1]}`;
    for (const link of document.querySelectorAll(".side a")) {
      const isHere = link.pathname === first || (link.pathname === "/sessions" && first === "/session");
      isHere ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
    }
    const side = document.querySelector(".side");
    const current = side.querySelector("[aria-current]");
    if (current) side.scrollLeft = current.offsetLeft - side.clientWidth / 3; // a phone shows a few of them
    const facets = page.querySelector("details.facets");
    const fits = !isNarrow[facets?.closest(".contents") ? "contents" : "facets"].matches;
    if (facets && !isQuiet && !fits) facets.removeAttribute("open");
    const asked = new URLSearchParams(location.search).get("q") ?? "";
    if (document.activeElement !== box) box.value = location.pathname === "/search" ? asked : "";
    if (isQuiet) return;
    const at = anchor || page.querySelector("[data-at]")?.dataset.at;
    const goal = at && document.getElementById(at);
    if (goal) {
      for (let fold = goal.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
      goal.classList.add("is-asked-for");
      goal.scrollIntoView({ block: "center", behavior: "instant" });
    } else if (anchor?.startsWith("e-")) return openEvent(anchor, { replace: true });
    else scrollTo({ top: left.top ?? 0, behavior: "instant" });
    if (left.row) rows().find((row) => row.getAttribute("href") === left.row)?.focus({ preventScroll: true });
    highlight();
    if (document.activeElement === document.body) page.focus({ preventScroll: true });
  }
  // An event that is not on this page, or folded away: the server finds it.
  const openEvent = (anchor, how) => show(`${location.pathname}?at=${anchor.slice(2)}`, how);
  // What was looked for, in this session or in all, marked wherever it is shown.
  function highlight() {
    window.CSS.highlights?.delete("found");
    const asked = new URLSearchParams(location.search);
    const words = asked.has("find") ? [asked.get("find")] : (asked.get("mark") ?? "").split(" ");
    const wanted = words.map((word) => word.toLowerCase()).filter(Boolean);
    const transcript = page.querySelector(".transcript");
    if (!wanted.length || !transcript || !window.CSS.highlights) return;
    const found = new Highlight();
    const walker = document.createTreeWalker(transcript, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const content = node.data.toLowerCase();
      for (const word of wanted)
        for (let at = content.indexOf(word); at >= 0; at = content.indexOf(word, at + word.length)) {
          const end = Math.min(at + word.length, node.length); // lower case may be longer
          if (at < end) found.add(new StaticRange({ startContainer: node, startOffset: at, endContainer: node, endOffset: end }));
        }
    }
    window.CSS.highlights.set("found", found);
  }
  document.addEventListener("htmx:after:swap", highlight);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    const isPlain = !event.defaultPrevented && event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey);
    if (!link || !isPlain) return;
    const href = link.getAttribute("href");
    if (new URL(href, location.href).origin !== location.origin) return;
    if (href.startsWith("#e-") && !document.getElementById(href.slice(1))) {
      event.preventDefault();
      openEvent(href.slice(1), { push: true });
    } else if (!href.startsWith("#")) {
      event.preventDefault();
      document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close());
      show(href, { push: true });
    }
  });
  addEventListener("popstate", (event) => {
    if (!location.hash.startsWith("#e-")) show(here() + location.hash, { left: event.state ?? {} });
  });

  // Search as you type.
  let typing;
  box.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      const query = new URLSearchParams(location.pathname === "/search" ? location.search : "");
      query.set("q", box.value);
      query.delete("offset");
      const isThere = location.pathname === "/search";
      show(`/search?${query}`, isThere ? { replace: true } : { push: true });
    }, 130);
  });
  document.querySelector(".search").addEventListener("submit", (event) => {
    event.preventDefault();
    page.querySelector("[data-row]")?.focus();
  });
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-visit]");
    if (!form) return;
    event.preventDefault();
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    show(`${form.dataset.visit}?${query}`, { push: true });
  });

  // Keyboard.
  const rows = () => [...page.querySelectorAll("[data-row]")].filter((row) => row.checkVisibility());
  function move(step) {
    const all = rows();
    const place = all.indexOf(document.activeElement);
    const next = all[place < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, place + step))];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }
  let leader = 0;
  const PLACES = { h: "/", s: "/sessions", f: "/file", t: "/stats", c: "/care" };
  const KEYS = {
    "/": () => (box.focus(), box.select()),
    j: () => move(1),
    k: () => move(-1),
    o: () => document.activeElement.closest("details")?.querySelector("summary").click(),
    "?": () => document.getElementById("help").showModal(),
    g: () => (leader = Date.now()),
  };
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (event.key === "Escape" && event.target === box) page.focus({ preventScroll: true });
    if (event.key === "Escape") event.target.closest(".fold[open]")?.querySelector("summary").focus();
    if (event.key === "Escape") closeMenus(null);
    const isTyping = event.target.closest("input, textarea, select, dialog");
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const place = Date.now() - leader < 900 && PLACES[event.key];
    const action = place ? () => show(place, { push: true }) : KEYS[event.key];
    if (!action) return;
    event.preventDefault();
    leader = 0;
    action();
  });
  document.getElementById("help-button").addEventListener("click", KEYS["?"]);

  // Ctrl-K: pages, and sessions by their words.
  const palette = document.getElementById("palette");
  const go = document.getElementById("go");
  const choices = document.getElementById("choices");
  let chosen = 0;
  function choice(text, href, detail = "") {
    const item = document.createElement("li");
    const link = document.createElement("a");
    const note = document.createElement("span");
    item.setAttribute("role", "option");
    note.className = "faint";
    note.textContent = detail;
    link.href = href;
    link.append(text, " ", note);
    item.append(link);
    return item;
  }
  function choose(place) {
    const all = [...choices.children];
    chosen = Math.max(0, Math.min(all.length - 1, place));
    all.forEach((item, index) => {
      item.id = `choice-${index}`;
      item.setAttribute("aria-selected", index === chosen);
    });
    all[chosen]?.scrollIntoView({ block: "nearest" });
    go.setAttribute("aria-activedescendant", all[chosen]?.id ?? "");
  }
  async function offer() {
    const text = go.value.trim();
    const links = [...document.querySelectorAll(".side a")];
    const near = links.filter((link) => link.textContent.toLowerCase().includes(text.toLowerCase()));
    choices.replaceChildren(...near.map((link) => choice(link.textContent, link.getAttribute("href"), "page")));
    choose(0);
    if (text.length < 2) return;
    const answer = await ask(`/search?q=${encodeURIComponent(text)}`, { headers: { Accept: "application/json" } });
    if (go.value.trim() !== text || !answer.ok) return;
    const found = await answer.json();
    const repos = found.facets.repo.filter((name) => name.toLowerCase().includes(text.toLowerCase()));
    for (const name of repos.slice(0, 4))
      choices.append(choice(name.split("/").pop(), `/repository/${encodeURIComponent(name)}`, "repository"));
    for (const hit of found.answer.hits.slice(0, 8))
      choices.append(choice(hit.title || hit.session_uid, `/session/${hit.session_uid}`, hit.repo?.split("/").pop()));
    choose(chosen);
  }
  function openPalette() {
    go.value = "";
    palette.showModal();
    offer();
  }
  go.addEventListener("input", offer);
  palette.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) choose(chosen + step);
    else if (event.key === "Enter") choices.children[chosen]?.querySelector("a").click();
    else return;
    event.preventDefault();
  });

  // Theme: as the system has it, or as chosen.
  const button = document.getElementById("theme");
  function paint(theme) {
    theme ? (document.documentElement.dataset.theme = theme) : delete document.documentElement.dataset.theme;
    button.setAttribute("aria-label", `Theme: ${theme || "automatic"}`);
    button.textContent = { light: "☀", dark: "☾" }[theme] || "◐";
  }
  paint(localStorage.getItem(THEME));
  button.addEventListener("click", () => {
    const next = { "": "light", light: "dark", dark: "" }[document.documentElement.dataset.theme || ""];
    localStorage.setItem(THEME, next);
    paint(next);
  });

  // Small things: menus, copying, messages.
  function closeMenus(except) {
    for (const menu of document.querySelectorAll("details.fold[open]")) if (!menu.contains(except)) menu.open = false;
  }
  document.addEventListener("click", (event) => {
    closeMenus(event.target.closest("[data-copy]") ? null : event.target);
    if (!event.target.closest("[data-fold-all]")) return;
    const files = [...page.querySelectorAll("details.file")];
    const isOpening = files.some((file) => !file.open);
    for (const file of files) file.open = isOpening;
  });
  document.addEventListener("toggle", (event) => {
    if (event.target.matches(".fold[open]")) event.target.querySelector("input, textarea")?.focus();
  }, true);
  function say(text) {
    const toast = document.getElementById("toast");
    toast.textContent = text;
    toast.classList.add("is-shown");
    setTimeout(() => toast.classList.remove("is-shown"), 2500);
  }
  document.addEventListener("click", async (event) => {
    const copy = event.target.closest("[data-copy]");
    if (!copy) return;
    await navigator.clipboard.writeText(copy.dataset.copy);
    say("Copied");
  });
  document.addEventListener("said", (event) => say(event.detail.value ?? event.detail));
  document.addEventListener("moved", (event) => show(event.detail.value ?? event.detail, { replace: true }));
  document.addEventListener("refresh", () => show(here(), { isQuiet: true }));

  // Live: the server says when something new was stored; what is shown follows, and stays where it is.
  async function refresh() {
    const tail = page.querySelector(".transcript > .transcript-page:last-of-type[data-is-last]");
    if (tail) return follow(tail);
    if (page.querySelector("[data-live]") && document.activeElement !== box) await show(here(), { isQuiet: true });
  }
  async function follow(tail) {
    const isAtEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
    const path = tail.dataset.page;
    await htmx.ajax("GET", path, { source: tail, target: tail, swap: "outerMorph", select: `#${tail.id}` });
    const now = document.getElementById(tail.id);
    if (now && !("isLast" in now.dataset) && now.nextElementSibling === null)
      await htmx.ajax("GET", now.dataset.next, { source: now, target: now, swap: "afterend" });
    if (isAtEnd) scrollTo({ top: document.documentElement.scrollHeight });
  }
  // A tab in the background does not listen: a browser has few connections to one server.
  let listening;
  async function listen() {
    listening = new AbortController();
    const headers = { Accept: "text/event-stream" };
    const answer = await ask("/live", { headers, signal: listening.signal });
    if (answer.status === 401) return lock();
    if (!answer.ok) throw new Error(String(answer.status));
    if (isLost) show(here() + location.hash);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read())
      if (part.value.includes("event: stored")) await refresh();
  }
  const isSeen = () =>
    document.visibilityState === "visible" ||
    new Promise((resolve) => document.addEventListener("visibilitychange", () => resolve(true), { once: true }));
  async function stayLive() {
    document.addEventListener("visibilitychange", () => document.hidden && listening?.abort());
    for (;;) {
      await isSeen();
      const isThere = token && (await listen().then(() => true, (error) => error.name !== "TypeError"));
      await new Promise((resolve) => setTimeout(resolve, 2000)); // then by polling, until the stream is back
      if (isThere && token && !document.hidden) await refresh().catch(() => {});
    }
  }

  addEventListener("DOMContentLoaded", async () => {
    if (await unlock()) await show(here() + location.hash);
    else lock();
    stayLive();
  });
})();
