// The page: the address is its state, a change of it asks the server, and what comes back is shown beside the baseline.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const VISITOR = crypto.getRandomValues(new Uint32Array(2)).join("-");
  const USUAL = { order: "fifo", backfill: "greedy", placement: "best_fit", estimate: "oracle", sharing: "fractional", load: 1, seed: 0 };
  const SOON = 60; // ms after the last change
  const LONG = 1500; // ms after which a newer question overtakes an older one
  const KEPT = 8;

  // Text is always set as text: what a log calls its things is never markup.
  const el = (name, props = {}, ...inside) => {
    const made = Object.assign(document.createElement(name), props);
    made.append(...inside);
    return made;
  };
  const shape = (name, about) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(about)) made.setAttribute(key, value);
    return made;
  };

  // --- the address ---
  let about = null; // what can be chosen
  let opened = null; // the trace: its types and notes
  let state = null; // { trace, view, now, base, kept }
  const fresh = () => ({ ...USUAL, nodes: {} });

  function scenario(params) {
    const found = fresh();
    for (const [name, value] of params) {
      if (name === "nodes") found.nodes[value.slice(0, value.lastIndexOf(":"))] = Number(value.slice(value.lastIndexOf(":") + 1));
      else if (name === "load" || name === "seed") found[name] = Number(value);
      else if (name in USUAL) found[name] = value;
    }
    return found;
  }
  function words(s) {
    const params = new URLSearchParams();
    for (const [name, usual] of Object.entries(USUAL)) if (s[name] !== usual) params.append(name, s[name]);
    for (const kind of Object.keys(s.nodes).sort()) params.append("nodes", `${kind}:${s.nodes[kind]}`);
    return params;
  }
  function fromAddress() {
    const params = new URLSearchParams(location.search);
    const part = (name) => scenario(new URLSearchParams(params.get(name) || ""));
    return {
      trace: params.get("trace") || "builtin:100000:0",
      view: params.get("view") === "trace" ? "trace" : "what-if",
      now: scenario(params),
      base: part("base"),
      kept: params.getAll("keep").slice(0, KEPT).map((said) => scenario(new URLSearchParams(said))),
    };
  }
  function address(s, { now = s.now, bare = false } = {}) {
    const params = new URLSearchParams([["v", "1"], ["trace", s.trace], ...words(now)]);
    if (words(s.base).size) params.append("base", words(s.base));
    if (!bare) {
      for (const kept of s.kept) params.append("keep", words(kept));
      if (s.view !== "what-if") params.append("view", s.view);
    }
    return params.toString();
  }
  const same = (a, b) => words(a).toString() === words(b).toString();

  // --- the server ---
  class Refused extends Error {
    constructor(told) { super(told.error); this.hint = told.hint; }
  }
  async function ask(path, options = {}) {
    const headers = { "Fleetlab-Visitor": VISITOR, ...options.headers };
    let answer;
    try { answer = await fetch(path, { ...options, headers }); } catch { throw new Refused({ error: "the server does not answer", hint: "is it still running?" }); }
    const told = await answer.json().catch(() => ({ error: `not an answer: ${answer.status}`, hint: null }));
    if (!answer.ok) throw new Refused(told);
    return told;
  }
  // One operation: its name is known before it is over, so that it can be stopped.
  class Operation {
    constructor(question, onProgress) { this.began = performance.now(); this.over = this.#run(question, onProgress); }
    async #run(question, onProgress) {
      const told = await ask("/api/operations", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) });
      this.name = told.operation;
      if (this.stopped) this.stop();
      return told.status === "going" ? this.#follow(onProgress) : this.#settled(told);
    }
    #follow(onProgress) {
      return new Promise((done, fail) => {
        const events = new EventSource(`/api/operations/${this.name}/events`);
        events.onmessage = (event) => {
          const told = JSON.parse(event.data);
          if (told.status === "going") return onProgress(told);
          events.close();
          try { done(this.#settled(told)); } catch (error) { fail(error); }
          return undefined;
        };
        events.onerror = () => {
          if (events.readyState === EventSource.CLOSED) fail(new Refused({ error: "the server does not answer", hint: "is it still running?" }));
          else say("The connection is lost; trying again");
        };
      });
    }
    #settled(told) {
      if (told.status === "failed") throw new Refused(told.refusal);
      return told.status === "done" ? told.result : null; // null: cancelled
    }
    stop() {
      this.stopped = true;
      if (this.name) ask(`/api/operations/${this.name}`, { method: "DELETE" }).catch(() => {});
    }
  }

  // --- what is going on ---
  let shownOperation = null;
  function busy(operation, what) {
    shownOperation = operation;
    $("cancel").hidden = false;
    $("progress").hidden = false;
    $("progress").removeAttribute("value");
    say(what);
  }
  function progressed(told) {
    const p = told.progress;
    const seconds = `${told.seconds.toFixed(told.seconds < 10 ? 1 : 0)} s`;
    if (told.ahead) say(`Waiting: ${told.ahead} ahead, ${seconds}`);
    else if (p) say(`${p.what}${p.done ? `, ${p.done.toLocaleString("en")}` : ""}, ${seconds}`);
    else say(`Starting, ${seconds}`);
    if (p && p.share !== null) $("progress").value = p.share; else $("progress").removeAttribute("value");
  }
  function idle(text) {
    shownOperation = null;
    $("cancel").hidden = true;
    $("progress").hidden = true;
    say(text);
  }
  const say = (text) => { if ($("status").textContent !== text) $("status").textContent = text; };
  function trouble(error) {
    const box = $("trouble");
    box.hidden = !error;
    if (!error) return;
    box.replaceChildren(el("p", {}, el("b", {}, "Error: "), error.message), ...(error.hint ? [el("p", { className: "soft" }, error.hint)] : []));
    idle("");
  }

  // --- asking: the newest question is answered; while one is on its way, the others wait, and only the last of them ---
  let going = null, wanted = null, timer = 0;
  function changed() {
    history.replaceState(null, "", `?${address(state)}`);
    mark();
    clearTimeout(timer);
    timer = setTimeout(play, SOON);
  }
  function play() {
    const link = address(state, { bare: true });
    wanted = link;
    if (!going) return start(link);
    if (going.link === link) return undefined;
    if (going.partly || performance.now() - going.began > LONG) return start(link, going.name);
    setTimeout(() => { if (going && wanted === link && going.link !== link) start(link, going.name); }, LONG - (performance.now() - going.began));
    return undefined;
  }
  async function start(link, instead) {
    const operation = new Operation({ kind: "run", link, ...(instead ? { instead } : {}) }, (told) => {
      if (going !== operation) return;
      progressed(told);
      const early = told.progress?.answer;
      if (!early) return;
      numbers(early);
      // What takes long is answered for the first jobs; whoever has moved on need not wait for all of them.
      operation.partly = Boolean(early.part);
      if (operation.partly && wanted !== link) start(wanted, operation.name);
    });
    operation.link = link;
    going = operation;
    $("what-if").classList.add("stale");
    busy(operation, "Asking");
    try {
      const answer = await operation.over;
      if (going !== operation) return;
      going = null;
      if (answer) show(answer, operation);
      else {
        $("what-if").classList.remove("stale", "drawing");
        if (operation.partly) $("part").textContent = $("part").textContent.replace("is coming", "was cancelled");
        idle(operation.partly ? "Cancelled. What is shown is a part." : "Cancelled. What is shown is the run before.");
      }
      if (answer || link !== wanted) trouble(null);
    } catch (error) {
      if (going !== operation) return;
      going = null;
      trouble(error);
    }
    if (wanted !== link) start(wanted);
  }

  // --- showing ---
  function show(answer, operation) {
    const round = (performance.now() - operation.began) / 1000;
    idle(`Answered in ${round.toFixed(2)} s; simulated in ${answer.seconds.toFixed(2)} s.`);
    numbers(answer);
    $("what-if").classList.remove("drawing");
    bars($("types"), answer.types.map((t) => ({ name: t.gpu_type, title: `${t.nodes.toLocaleString("en")} nodes; ${t.base_nodes.toLocaleString("en")} in the baseline`, base: { value: t.base }, now: { value: t.now }, said: share(t.now), change: `baseline ${share(t.base)}`, most: 1 })));
    figures(answer.html);
    $("notes").replaceChildren(...[...(opened ? opened.notes.slice(0, 1) : []), ...answer.notes].map((line) => el("li", {}, line)));
    remember(answer);
    downloads();
  }
  // What is known before anything is drawn.
  function numbers(answer) {
    $("what-if").classList.remove("stale");
    $("what-if").classList.add("drawing");
    $("part").hidden = !answer.part;
    $("part").textContent = answer.part ? `${answer.part.words[0].toUpperCase()}${answer.part.words.slice(1)}: the whole is coming. Both sides play these jobs alone; intervals are of this part.` : "";
    $("findings").replaceChildren(...answer.findings.map((line) => el("li", {}, line)));
    $("numbers").tBodies[0].replaceChildren(...answer.rows.map(row));
    bars($("ledger"), answer.ledger.map((r) => ({ name: r.reason, title: r.meaning, base: r.base, now: r.now, said: r.now.words, change: r.change.words })));
    if (!answer.ledger.length) $("ledger").replaceChildren(el("p", {}, "Nobody waits."));
  }
  const share = (v) => (v === null ? "–" : `${(100 * v).toFixed(1)} %`);
  function mood(r) {
    if (r.verdict === "unclear" || r.verdict === "same" || r.verdict === "unknown" || !r.better) return "unclear";
    return r.verdict === r.better ? "better" : "worse";
  }
  const parted = (text) => {
    const [value, rest] = text.split(" (");
    return rest ? [el("b", {}, value), el("span", { className: "soft" }, ` (${rest}`)] : [el("b", {}, value)];
  };
  function row(r) {
    return el("tr", {},
      el("th", { scope: "row" }, r.metric), el("td", {}, ...parted(r.base.words)), el("td", {}, ...parted(r.now.words)),
      el("td", { className: mood(r) }, ...parted(r.change.words), ...(r.verdict === "unclear" ? [el("span", { className: "only-read" }, ", not clear")] : [])),
      el("td", { className: "wide-only" }, span(r)));
  }
  // Both intervals on one rail, from 0 where that is near.
  function span(r) {
    const ends = [r.base, r.now].flatMap((e) => [e.low ?? e.value, e.high ?? e.value]).filter((v) => v !== null);
    let [low, high] = [Math.min(...ends), Math.max(...ends)];
    if (low >= 0 && low < high * 0.6) low = 0;
    if (!(high > low)) [low, high] = [low - 1, high + 1];
    const at = (v) => 6 + ((v - low) / (high - low)) * 228;
    const svg = shape("svg", { class: "span", viewBox: "0 0 240 26", "aria-hidden": "true" });
    svg.append(shape("line", { class: "rail", x1: 0, x2: 240, y1: 13, y2: 13 }));
    for (const [e, y, name] of [[r.base, 8, "b"], [r.now, 18, "n"]]) {
      if (e.value === null) continue;
      if (e.low !== null && e.high !== null) svg.append(shape("line", { class: name, x1: at(e.low), x2: at(e.high), y1: y, y2: y }));
      svg.append(shape("circle", { class: name, cx: at(e.value), cy: y, r: 3.6 }));
    }
    return svg;
  }
  function bars(box, rows) {
    const most = Math.max(1e-9, ...rows.flatMap((r) => [r.most || 0, r.base.value || 0, r.now.value || 0, r.now.high || 0, r.base.high || 0]));
    const wide = (v) => `${(100 * Math.max(0, v || 0)) / most}%`;
    box.replaceChildren(el("p", { className: "key" }, el("span", {}, "now"), el("span", { className: "b" }, "baseline")), ...rows.map((r) => {
      const svg = shape("svg", { "aria-hidden": "true" });
      svg.append(shape("rect", { class: "b", x: 0, y: 12, height: 7, width: wide(r.base.value) }), shape("rect", { class: "n", x: 0, y: 3, height: 7, width: wide(r.now.value) }));
      for (const [e, y] of [[r.now, 6.5], [r.base, 15.5]])
        if (e.low !== undefined && e.low !== null && e.high !== null) svg.append(shape("line", { x1: wide(e.low), x2: wide(e.high), y1: y, y2: y }));
      return el("div", { className: "bar", title: r.title }, el("span", { className: "name" }, r.name), svg,
        el("span", { className: "amount" }, ...parted(r.said), el("br"), el("span", { className: "soft" }, r.change)));
    }));
  }
  // Drawn by the server, which writes every name as text; no script of such a part would run here.
  function figures(html) {
    const open = [...$("figures").querySelectorAll("figure")].filter((f) => f.querySelector("details[open]")).map((f) => f.id);
    const part = new DOMParser().parseFromString(html, "text/html");
    $("figures").replaceChildren(...[...part.body.childNodes].map((node) => document.adoptNode(node)));
    for (const id of open) { const details = $(id)?.querySelector("details"); if (details) details.open = true; }
    window.fleetlab.live($("figures"));
  }
  function downloads() {
    $("report").href = `/api/report.html?${address(state)}`;
    $("json").href = `/api/result.json?${address(state, { bare: true })}`;
  }

  // --- kept runs ---
  const known = new Map(); // rows by address, of what was answered
  const runs = () => [{ s: state.base, base: true }, ...state.kept.map((s) => ({ s }))];
  const key = (s) => address(state, { now: s, bare: true });
  function remember(answer) {
    known.set(answer.link, answer);
    known.set(key(state.now), answer);
    table();
  }
  const titled = (s) => {
    const said = [...words(s)].map(([name, value]) => (["order", "backfill", "placement", "sharing", "nodes"].includes(name) ? value : `${name} ${value}`));
    return said.join(", ") || "fifo, skip, best_fit";
  };
  function table() {
    $("kept").hidden = !state.kept.length;
    const shown = ["mean wait", "P90 wait", "mean JCT", "GPU allocation while jobs arrive"];
    const current = known.get(key(state.now));
    const focused = $("kept-table").contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    $("kept-table").tBodies[0].replaceChildren(...runs().map(({ s, base }) => {
      const answer = known.get(key(s));
      const side = answer ? "now" : "base";
      const from = answer || (base ? current : null);
      const cells = shown.map((metric) => {
        const r = from?.rows.find((one) => one.metric === metric);
        return el("td", {}, ...(r ? parted(r[side].words) : ["…"]));
      });
      const show = el("button", { type: "button" }, "Show");
      show.addEventListener("click", () => { state.now = { ...s, nodes: { ...s.nodes } }; settle(); changed(); });
      const drop = el("button", { type: "button" }, "Remove");
      drop.addEventListener("click", () => { state.kept = state.kept.filter((one) => one !== s); table(); changed(); $("keep").focus(); });
      const name = `${base ? "baseline: " : ""}${titled(s)}`;
      for (const button of [show, drop]) button.setAttribute("aria-label", `${button.textContent}: ${name}`);
      return el("tr", { className: same(s, state.now) ? "now" : "" }, el("th", { scope: "row" }, name), ...cells,
        el("td", {}, el("div", { className: "actions" }, show, ...(base ? [] : [drop]))));
    }));
    if (focused) [...$("kept-table").querySelectorAll("button")].find((b) => b.getAttribute("aria-label") === focused)?.focus();
  }
  // Those that came with the address are played one after the other, when nothing else is.
  async function fillKept() {
    for (const s of state.kept) {
      if (known.has(key(s))) continue;
      const link = key(s);
      try {
        const answer = await new Operation({ kind: "run", link }, () => {}).over;
        if (answer) known.set(link, answer);
      } catch (error) { trouble(error); }
      table();
    }
  }

  // --- controls ---
  const RULES = ["order", "backfill", "placement", "estimate", "sharing"];
  function makeRules() {
    $("rules").replaceChildren(...RULES.map((rule) => {
      const select = el("select", { id: `rule-${rule}` }, ...about.rules[rule].map((c) => el("option", { value: c.name }, c.name)));
      select.addEventListener("change", () => { state.now[rule] = select.value; changed(); });
      const label = el("label", { htmlFor: select.id }, rule[0].toUpperCase() + rule.slice(1));
      const meaning = el("span", { className: "soft", id: `means-${rule}` });
      select.setAttribute("aria-describedby", meaning.id);
      return el("div", { className: "rule", id: `row-${rule}` }, label, select, meaning);
    }));
  }
  function slider(id, name, { min, max, step, value, said, move }) {
    const input = el("input", { id, type: "range", min, max, step, value });
    const output = el("output", { htmlFor: id }, said(value));
    input.setAttribute("aria-valuetext", said(value));
    input.addEventListener("input", () => {
      const v = Number(input.value);
      output.textContent = said(v);
      input.setAttribute("aria-valuetext", said(v));
      move(v);
    });
    return [el("label", { htmlFor: id }, name), output, input];
  }
  const percent = (v, of) => (of && v !== of ? ` (${v > of ? "+" : "−"}${Math.abs(Math.round((100 * v) / of - 100))} %)` : "");
  function settle() {
    for (const rule of RULES) $(`rule-${rule}`).value = state.now[rule];
    $("load-row").replaceChildren(...slider("load", "Arrivals", {
      min: 0.5, max: 2, step: 0.05, value: state.now.load, said: (v) => `${v.toFixed(2)} times as fast`,
      move: (v) => { state.now.load = Math.round(v * 100) / 100; changed(); },
    }));
    if (opened) makeNodes();
    mark();
    downloads();
  }
  function makeNodes() {
    $("nodes").replaceChildren(...opened.types.map((t, k) => el("div", { className: "slider", id: `nodes-row-${k}` }, ...slider(`nodes-${k}`, t.gpu_type, {
      min: 0, max: Math.max(4, 2 * t.nodes), step: 1, value: state.now.nodes[t.gpu_type] ?? t.nodes,
      said: (v) => `${v.toLocaleString("en")}${percent(v, t.nodes)}`,
      move: (v) => {
        if (v === t.nodes) delete state.now.nodes[t.gpu_type]; else state.now.nodes[t.gpu_type] = v;
        changed();
      },
    }))));
  }
  function mark() {
    for (const rule of RULES) {
      $(`row-${rule}`).classList.toggle("changed", state.now[rule] !== state.base[rule]);
      $(`means-${rule}`).textContent = about.rules[rule].find((c) => c.name === state.now[rule])?.meaning || "";
    }
    $("row-estimate").classList.toggle("idle", !about.by_estimate.includes(state.now.order));
    $("load-row").classList.toggle("changed", state.now.load !== state.base.load);
    (opened ? opened.types : []).forEach((t, k) => $(`nodes-row-${k}`)?.classList.toggle("changed", state.now.nodes[t.gpu_type] !== state.base.nodes[t.gpu_type]));
    $("rebase").disabled = same(state.now, state.base);
    $("reset").disabled = same(state.now, fresh()) && same(state.base, fresh());
    $("keep").disabled = state.kept.length >= KEPT || state.kept.some((s) => same(s, state.now));
    for (const link of document.querySelectorAll("nav a[data-view]"))
      if (link.dataset.view === state.view) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  const copied = (s) => ({ ...s, nodes: { ...s.nodes } });
  $("keep").addEventListener("click", () => {
    state.kept.push(copied(state.now));
    table();
    mark();
    history.replaceState(null, "", `?${address(state)}`);
    downloads();
    say("Kept: it is in the table of kept runs, and in the link.");
  });
  $("rebase").addEventListener("click", () => { state.base = copied(state.now); known.clear(); changed(); fillKept(); });
  $("reset").addEventListener("click", () => { state.now = fresh(); state.base = fresh(); settle(); changed(); });
  $("cancel").addEventListener("click", () => { wanted = going ? going.link : wanted; shownOperation?.stop(); });
  $("share").addEventListener("click", async () => {
    history.replaceState(null, "", `?${address(state)}`);
    try { await navigator.clipboard.writeText(location.href); say("The link is copied."); } catch { say("The link is the address of this page."); }
  });
  $("controls").addEventListener("submit", (event) => event.preventDefault());

  // --- the trace ---
  function listed() {
    const choices = [...about.traces];
    if (!choices.some((t) => t.trace === state.trace)) choices.push({ trace: state.trace, title: state.trace.startsWith("upload:") ? "your upload" : state.trace });
    $("trace").replaceChildren(...choices.map((t) => el("option", { value: t.trace }, t.title)));
    $("trace").value = state.trace;
  }
  $("trace").addEventListener("change", () => take($("trace").value));
  async function take(trace) {
    if (trace !== state.trace) Object.assign(state, { trace, now: fresh(), base: fresh(), kept: [] });
    history.replaceState(null, "", `?${address(state)}`);
    known.clear();
    opened = null;
    description = null;
    listed();
    $("nodes").replaceChildren(el("p", { className: "soft" }, "…"));
    await view();
  }
  async function open() {
    const operation = new Operation({ kind: "open", trace: state.trace }, progressed);
    busy(operation, "Opening the trace");
    const found = await operation.over;
    if (!found) { idle("Cancelled: choose a trace."); return false; }
    opened = found;
    const of = (metric) => opened.summary.find((e) => e.metric === metric)?.value ?? 0;
    const days = of("submissions span");
    $("about").textContent = [`${of("jobs").toLocaleString("en")} jobs`, `${opened.types.reduce((n, t) => n + t.gpus, 0).toLocaleString("en")} GPUs`,
      `${days < 2 ? `${(24 * days).toFixed(1)} hours` : `${days.toFixed(1)} days`}`, opened.source].join(" · ");
    settle();
    return true;
  }
  let description = null;
  async function describe() {
    if (description === state.trace) return idle("");
    $("described").replaceChildren();
    const operation = new Operation({ kind: "describe", trace: state.trace }, progressed);
    busy(operation, "Describing the trace");
    const found = await operation.over;
    if (!found) return idle("Cancelled.");
    const part = new DOMParser().parseFromString(found.html, "text/html");
    const notes = el("ul", { className: "notes" }, ...opened.notes.map((line) => el("li", {}, line)));
    $("described").replaceChildren(...[...part.body.childNodes].map((node) => document.adoptNode(node)), el("h2", {}, "Notes"), notes);
    window.fleetlab.live($("described"));
    description = state.trace;
    return idle("");
  }
  async function view() {
    $("what-if").hidden = state.view !== "what-if";
    $("described").hidden = state.view !== "trace";
    mark();
    try {
      trouble(null);
      if (!opened && !(await open())) return;
      if (state.view === "trace") await describe();
      else { play(); table(); fillKept(); }
    } catch (error) { trouble(error); }
  }
  for (const link of document.querySelectorAll("nav a[data-view]"))
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (state.view === link.dataset.view) return;
      state.view = link.dataset.view;
      history.pushState(null, "", `?${address(state)}`);
      view();
      $("main").focus({ preventScroll: true });
    });
  addEventListener("popstate", () => {
    const before = state.trace;
    state = fromAddress();
    if (state.trace !== before) { take(state.trace); return; }
    settle();
    view();
  });

  // --- your own log ---
  function formats() {
    $("format").replaceChildren(...about.formats.map((f) => el("option", { value: f.name }, f.title)));
    $("format").value = "csv";
    const told = () => {
      const f = about.formats.find((one) => one.name === $("format").value);
      $("expects").textContent = `Expects ${f.expects}. At most ${about.limits.upload_bytes / 2 ** 20} MiB.`;
      $("zone-row").hidden = !f.options.includes("zone");
      $("map-row").hidden = !f.options.includes("map");
    };
    $("format").addEventListener("change", told);
    told();
  }
  $("send").addEventListener("click", async () => {
    const chosen = [...$("files").files];
    if (!chosen.length) return trouble(new Refused({ error: "no file was chosen", hint: "choose one, or several of one log" }));
    const f = about.formats.find((one) => one.name === $("format").value);
    const pairs = $("map").value.split("\n").filter((line) => line.trim()).map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]);
    $("send").disabled = true;
    trouble(null);
    try {
      let upload = "";
      for (const file of chosen) {
        say(`Sending ${file.name}`);
        const told = await ask(`/api/uploads?${new URLSearchParams({ name: file.name, ...(upload ? { upload } : {}) })}`,
          { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file });
        upload = told.upload;
      }
      const question = { kind: "read", upload, format: f.name };
      if (f.options.includes("zone") && $("zone").value.trim()) question.zone = $("zone").value.trim();
      if (f.options.includes("map") && pairs.length) question.map = Object.fromEntries(pairs);
      const operation = new Operation(question, progressed);
      busy(operation, "Reading");
      const found = await operation.over;
      if (!found) { idle("Cancelled; nothing was kept."); return undefined; }
      $("sending").open = false;
      about.traces.push({ trace: found.trace, title: `${chosen[0].name.slice(0, 40)}, ${found.jobs.toLocaleString("en")} jobs` });
      await take(found.trace);
    } catch (error) { trouble(error); } finally { $("send").disabled = false; }
    return undefined;
  });

  (async () => {
    try {
      about = await ask("/api/about");
      state = fromAddress();
      makeRules();
      formats();
      listed();
      settle();
      await view();
    } catch (error) { trouble(error); }
  })();
})();
