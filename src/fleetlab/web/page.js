// The page: its address is its state. A change is sent to the server, and the answer is shown beside the baseline.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const VISITOR = crypto.getRandomValues(new Uint32Array(2)).join("-");
  const SOON = 60; // ms after the last change
  const LONG = 1500; // ms after which a newer request replaces an older one
  const KEPT = 8;
  const TOGETHER = 1500; // ms within which changes of one control are one step back
  const TICK = 250; // ms between two moves of the clock

  // Text is always set as text: names from a log are never markup.
  const el = (name, props = {}, ...inside) => {
    const made = Object.assign(document.createElement(name), props);
    made.append(...inside);
    return made;
  };
  // A sentence in which what stands between backticks is code.
  const prose = (text) => text.split("`").map((part, k) => (k % 2 ? el("code", {}, part) : part));
  const shape = (name, about) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(about)) made.setAttribute(key, value);
    return made;
  };

  // One rule for durations, that of the server: days from 2, hours from 2, minutes from 2, else seconds; three digits.
  const LENGTHS = [[2 * 86400, 86400, "days"], [7200, 3600, "h"], [120, 60, "min"], [0, 1, "s"]];
  function duration(seconds) {
    const [, length, unit] = LENGTHS.find(([least]) => Math.abs(seconds) >= least);
    const value = Number((seconds / length).toPrecision(3));
    return `${value.toLocaleString("en", { maximumSignificantDigits: 4 }).replace("-", "−")} ${unit}`;
  }

  const capital = (text) => text[0].toUpperCase() + text.slice(1);
  const hundredths = (seconds) => Math.round(100 * seconds) / 100;

  const VIEWS = { "what-if": "What if", advice: "What to do", job: "One job", trace: "What happened" };

  // --- the address: a scenario is text by option, as the command line has it ---
  let options = null; // what can be chosen
  let opened = null; // the trace: its nodes and notes
  let state = null; // { trace, view, job, submitted, now, base, kept }
  const OWN = ["v", "trace", "base", "keep", "submitted", "view", "job"];
  const fresh = () => Object.fromEntries(options.options.map((o) => [o.name, o.default]));

  function scenario(params) {
    const values = fresh();
    for (const [name, value] of params) if (!OWN.includes(name)) values[name] = value;
    return values;
  }
  function words(s) {
    const defaults = fresh();
    return new URLSearchParams(Object.entries(s).filter(([name, value]) => value !== (defaults[name] ?? "")));
  }
  function fromAddress() {
    const params = new URLSearchParams(location.search);
    return {
      trace: params.get("trace") || "sample",
      view: Object.keys(VIEWS).includes(params.get("view")) ? params.get("view") : "what-if",
      job: params.get("job") ?? "",
      submitted: params.get("submitted") ?? "",
      now: scenario(params),
      base: scenario(new URLSearchParams(params.get("base") || "")),
      kept: params.getAll("keep").slice(0, KEPT).map((query) => scenario(new URLSearchParams(query))),
    };
  }
  function address(s, { now = s.now, short = false } = {}) {
    const params = new URLSearchParams([["v", "1"], ["trace", s.trace], ...words(now)]);
    if (words(s.base).size) params.append("base", words(s.base));
    if (s.submitted) params.append("submitted", s.submitted);
    if (!short) {
      for (const kept of s.kept) params.append("keep", words(kept));
      if (s.view !== "what-if") params.append("view", s.view);
      if (s.view === "job" && s.job) params.append("job", s.job);
    }
    return params.toString();
  }
  const same = (a, b) => words(a).toString() === words(b).toString();

  // --- the server ---
  const NO_SERVER = { error: "the server does not answer", hint: "is it still running?" };
  class Refused extends Error {
    constructor(message) { super(message.error); this.hint = message.hint; }
  }
  async function ask(path, options = {}) {
    const headers = { "Fleetlab-Visitor": VISITOR, ...options.headers };
    let answer;
    try { answer = await fetch(path, { ...options, headers }); } catch { throw new Refused(NO_SERVER); }
    const message = await answer.json().catch(() => ({ error: `the server answered with status ${answer.status}`, hint: null }));
    if (!answer.ok) throw new Refused(message);
    return message;
  }
  // One operation: its name is known before it is over, so that it can be cancelled.
  class Operation {
    constructor(question, onProgress) { this.began = performance.now(); this.over = this.#run(question, onProgress); }
    async #run(question, onProgress) {
      const message = await ask("/api/operations", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) });
      this.name = message.operation;
      if (this.stopped) this.stop();
      return message.status === "running" ? this.#follow(onProgress) : this.#settled(message);
    }
    #follow(onProgress) {
      return new Promise((done, fail) => {
        const events = new EventSource(`/api/operations/${this.name}/events`);
        events.onmessage = (event) => {
          const message = JSON.parse(event.data);
          if (message.status === "running") return onProgress(message);
          events.close();
          try { done(this.#settled(message)); } catch (error) { fail(error); }
          return undefined;
        };
        events.onerror = () => {
          if (events.readyState === EventSource.CLOSED) fail(new Refused(NO_SERVER));
          else say("Connection lost; reconnecting");
        };
      });
    }
    #settled(message) {
      if (message.status === "failed") throw new Refused(message.error);
      return message.status === "done" ? message.result : null; // null: cancelled
    }
    stop() {
      this.stopped = true;
      if (this.name) ask(`/api/operations/${this.name}`, { method: "DELETE" }).catch(() => {});
    }
  }

  // --- what is going on: a clock, and how much is left by the progress of this phase, else by what such work took ---
  let shownOperation = null, ticking = 0;
  const clock = { began: 0, expected: null, what: "", since: 0, fraction: null };
  function busy(operation, what) {
    shownOperation = operation;
    Object.assign(clock, { began: performance.now(), expected: null, what: "", since: performance.now(), fraction: null });
    clearInterval(ticking);
    ticking = setInterval(tick, TICK);
    tick();
    $("cancel").hidden = false;
    $("progress").hidden = false;
    $("progress").removeAttribute("value");
    say(what);
  }
  function left() {
    const now = performance.now();
    const phase = (now - clock.since) / 1000;
    if (clock.fraction > 0.02 && phase > 0.5) return (phase * (1 - clock.fraction)) / clock.fraction;
    return clock.expected === null ? null : clock.expected - (now - clock.began) / 1000;
  }
  function tick() {
    const seconds = (performance.now() - clock.began) / 1000;
    $("clock").hidden = seconds < 1;
    if (seconds < 1) return;
    const rest = left();
    const eta = rest === null ? "time left not known yet" : rest < -2 ? "longer than expected" : rest < 0.5 ? "any moment now" : `about ${duration(Math.max(1, Math.round(rest)))} left`;
    $("clock").textContent = `${duration(Math.floor(seconds))}, ${eta}`;
  }
  function progressed(message) {
    const p = message.progress;
    const what = message.ahead ? `Queued: ${message.ahead} ahead` : p ? `${p.what}${p.count ? `, ${p.count.toLocaleString("en")}` : ""}` : "Starting";
    if ((p?.what ?? "") !== clock.what) Object.assign(clock, { what: p?.what ?? "", since: performance.now() });
    clock.expected = message.expected ?? null;
    clock.fraction = p?.fraction ?? null;
    say(what);
    tick();
    if (clock.fraction !== null) $("progress").value = clock.fraction; else $("progress").removeAttribute("value");
  }
  function idle(text) {
    shownOperation = null;
    clearInterval(ticking);
    $("clock").hidden = true;
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

  // --- undo and redo: every change is a step of the browser's history, a drag of one slider is one step ---
  const steps = { at: history.state?.step ?? 0, last: history.state?.step ?? 0, what: "", when: -Infinity, query: "" };
  function record(what = "") {
    const query = `?${address(state)}`;
    if (query === steps.query) return;
    const now = performance.now();
    const together = what && what === steps.what && now - steps.when < TOGETHER;
    Object.assign(steps, { what, when: now, query });
    if (together) history.replaceState({ step: steps.at }, "", query);
    else {
      steps.at += 1;
      steps.last = steps.at;
      history.pushState({ step: steps.at }, "", query);
    }
  }
  function arrive() {
    Object.assign(steps, { at: history.state?.step ?? 0, what: "", query: `?${address(state)}` });
    steps.last = Math.max(steps.last, steps.at);
    history.replaceState({ step: steps.at }, "");
  }
  window.fleetlab.duration = duration;
  $("undo").addEventListener("click", () => history.back());
  $("redo").addEventListener("click", () => history.forward());

  // --- requests: while one is running, only the newest of the others waits ---
  let going = null, wanted = null, timer = 0;
  function changed(what) {
    record(what);
    mark();
    wanted = address(state, { short: true });
    filling?.stop();
    settleFor(null);
    makePresets();
    if (state.view !== "what-if") { if (state.view !== "trace") view(); return; }
    stale("The run of the new settings is in progress");
    clearTimeout(timer);
    timer = setTimeout(play, SOON);
  }
  function play() {
    const link = address(state, { short: true });
    wanted = link;
    if (!going) return start(link);
    if (going.link === link) return undefined;
    if (performance.now() - going.began > LONG) return start(link, going.name);
    setTimeout(() => { if (going && wanted === link && going.link !== link) start(link, going.name); }, LONG - (performance.now() - going.began));
    return undefined;
  }
  async function start(link, replaces) {
    const operation = new Operation({ kind: "run", link, ...(replaces ? { replaces } : {}) }, (message) => {
      if (going !== operation) return;
      progressed(message);
      if (!message.progress?.answer || wanted !== link) return;
      operation.hasNumbers = true;
      numbers(message.progress.answer);
    });
    operation.link = link;
    going = operation;
    settleFor(null);
    stale("The run of the new settings is in progress");
    busy(operation, "Sending");
    try {
      const answer = await operation.over;
      if (going !== operation) return;
      going = null;
      if (answer) show(answer, operation);
      else {
        if (!operation.hasNumbers) stale("The run of the new settings was cancelled");
        idle(`Cancelled: the ${operation.hasNumbers ? "figures" : "numbers"} are those of the previous run.`);
      }
      if (answer || link !== wanted) trouble(null);
    } catch (error) {
      if (going !== operation) return;
      going = null;
      stale("The new settings have no result");
      trouble(error);
    }
    if (wanted !== link) start(wanted);
  }

  // --- showing ---
  function show(answer, operation) {
    const round = (performance.now() - operation.began) / 1000;
    idle(`Answered in ${duration(hundredths(round))}; simulated in ${duration(hundredths(answer.seconds))}.`);
    numbers(answer);
    $("what-if").classList.remove("drawing");
    bars($("allocation"), answer.allocation.map((t) => ({ name: t.gpu_type, title: `${t.nodes.toLocaleString("en")} nodes; ${t.base_nodes.toLocaleString("en")} in the baseline`, base: { value: t.base }, now: { value: t.now }, text: percentage(t.now), change: `baseline ${percentage(t.base)}`, most: 1 })));
    figures(answer.html);
    notes(answer);
    remember(answer, operation.link);
    downloads();
    makePresets();
    document.dispatchEvent(new CustomEvent("fleetlab:answer", { detail: answer })); // for figures of other scripts
    refine(answer, operation.link);
  }
  // One run says nothing of chance: paired replicas follow, and replace its numbers as they come in.
  let refining = null;
  function settleFor(operation) {
    refining?.stop();
    refining = operation;
  }
  async function refine(first, link) {
    let answer = first;
    const operation = new Operation({ kind: "refine", link }, (message) => {
      if (refining !== operation) return;
      const { answer: more, count, what } = message.progress ?? {};
      if (more && more.replicas > answer.replicas) levels(answer = more);
      else if (what === "refining") evidence(answer, count);
    });
    settleFor(operation);
    try {
      const last = await operation.over;
      if (refining !== operation) return;
      if (last) { levels(last); notes(last); remember(last, link); makePresets(); }
    } catch (error) {
      if (refining !== operation) return;
      $("evidence").textContent = `One run of the log as it is; there are no replicas: ${error.message}.`;
    }
    refining = null;
    fillPresets();
  }
  function evidence(answer, count = answer.replicas) {
    const { replicas, planned, scope } = answer;
    $("evidence").textContent = replicas < planned ? `Refining: ${Math.max(count, replicas)} of ${planned} runs`
      : replicas > 1 ? `Means over ${replicas} replicas of ${scope}, with 95 % CI` : "One run of the log as it is";
  }
  const notes = (answer) => $("notes").replaceChildren(...[...(opened ? opened.notes.slice(0, 1) : []), ...answer.notes].map((line) => el("li", {}, ...prose(line))));
  // Until the run is done the numbers are those of the previous settings: greyed, without colors and sentences.
  function stale(why) {
    $("what-if").classList.add("stale");
    $("previous").textContent = `${why}: the numbers below are of the previous settings.`;
    $("previous").hidden = !$("numbers").tBodies[0].rows.length;
  }
  // What is known before figures are drawn.
  function numbers(answer) {
    $("what-if").classList.remove("stale");
    $("what-if").classList.add("drawing");
    $("previous").hidden = true;
    window.fleetlab.showTimeline(answer.link, VISITOR);
    bar(answer);
    $("population").textContent = answer.population;
    selected(answer.submitted);
    levels(answer);
  }
  // What replicas refine.
  function levels(answer) {
    headline(answer);
    recorded(answer);
    tiles(answer);
    bars($("reasons"), answer.wait_reasons.map((r) => ({ name: r.reason.replaceAll("_", " "), title: r.meaning, base: r.base, now: r.now, text: r.now.text, change: r.change.text })));
    if (!answer.wait_reasons.length) $("reasons").replaceChildren(el("p", {}, answer.rows.some((r) => r.metric === "mean wait") ? "No job waits." : "No job completed."));
    $("findings").replaceChildren(...answer.findings.filter((line) => !answer.headline.toLowerCase().includes(line.toLowerCase())).map((line) => el("li", {}, ...prose(line))));
    $("numbers").tBodies[0].replaceChildren(...answer.rows.map(row));
    evidence(answer);
  }
  // Two digits, as in a sentence; the table has more.
  const short = (text) => text.split(" (")[0].replace(/[\d,]*\.?\d+/, (digits) => { const v = Number(digits.replaceAll(",", "")); return (v < 1000 ? Number(v.toPrecision(2)) : Math.round(v)).toLocaleString("en"); });
  // Four numbers first: differences only where something was changed.
  function tiles(answer) {
    const changed = !same(state.now, state.base);
    const tile = (name, value, below = "", mood = "soft", title = "") => el("div", { title }, el("dt", {}, name), el("dd", {}, el("b", {}, value), ...(below ? [el("span", { className: mood }, below)] : [])));
    const of = (metric, name) => {
      const r = answer.rows.find((one) => one.metric === metric);
      if (!r) return [];
      const by = r.base.value ? ` (${r.change.value > 0 ? "+" : "−"}${Math.abs((100 * r.change.value) / r.base.value).toFixed(0)} %)` : "";
      const difference = r.change.value ? `${short(r.change.text)}${r.unit === "%" ? "" : by}` : "no difference";
      return [tile(name, short(r.now.text), changed ? difference : "", mood(r), r.now.text)];
    };
    const [first] = [...answer.wait_reasons].sort((a, b) => (b.now.value ?? 0) - (a.now.value ?? 0));
    const total = answer.wait_reasons.reduce((sum, r) => sum + (r.now.value ?? 0), 0);
    const why = first && total ? [tile("Main reason to wait", first.reason.replaceAll("_", " "), `${((100 * first.now.value) / total).toFixed(0)} % of all waiting`, "soft", first.meaning)] : [tile("Main reason to wait", "none")];
    $("tiles").replaceChildren(...of("mean wait", "Mean wait"), ...of("P90 wait", "P90 wait"), ...of("GPU allocation while jobs arrive", "GPU allocation"), ...why);
  }
  // What is simulated, and how far to believe it.
  function bar(answer) {
    const { scheduler: by } = answer;
    const chip = $("chip-scheduler");
    chip.hidden = false;
    chip.textContent = by.replaces ? `${by.title}: not your ${by.replaces}` : `Scheduler: ${by.title}`;
    chip.classList.toggle("amber", Boolean(by.replaces));
    $("settings").hidden = !by.settings.length;
    $("setting-rows").tBodies[0].replaceChildren(...by.settings.map((one) => el("tr", {}, el("th", { scope: "row" }, one.name), el("td", {}, one.was), el("td", {}, one.becomes))));
    $("setting-notes").replaceChildren(...by.notes.map((line) => el("li", {}, line)));
  }
  $("chip-trust").addEventListener("click", () => { go("advice"); window.fleetlab.advise("calibrate"); });
  // What is measured, where that is a part of the jobs: selected in the timeline, kept from one what-if to the next.
  function selected(text) {
    $("selected").hidden = !text;
    $("selected-text").textContent = `All numbers and figures are of ${text}.`;
  }
  function select(submitted) {
    if (state.submitted === submitted) return;
    state.submitted = submitted;
    changed();
  }
  // To whole minutes, or finer where the time is short: nobody brushes to the second.
  const GRAINS = [3600, 600, 60, 10, 1];
  function selection({ t0, t1 }) {
    const grain = GRAINS.find((g) => (t1 - t0) / g >= 50) ?? 1;
    const [begin, end] = [Math.round(t0 / grain) * grain, Math.round(t1 / grain) * grain];
    return `${begin}..${Math.max(end, begin + grain)}`;
  }
  document.addEventListener("timeline-window", ({ detail }) => select(detail ? selection(detail) : ""));
  document.addEventListener("timeline-job", ({ detail }) => window.fleetlab.page.showJob(`#${detail.job}`));
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && state?.submitted && state.view === "what-if" && !event.target.closest("input, select, textarea, .timeline-plots")) select("");
  });
  $("unselect").addEventListener("click", () => { select(""); $("main").focus({ preventScroll: true }); });
  // One sentence, also in the title of the tab, and pinned where the controls hide the results.
  function headline(answer) {
    $("headline").textContent = $("pinned-headline").textContent = answer.headline;
    $("pinned").hidden = same(state.now, state.base); // on a phone it would hide the timeline
    $("pinned-numbers").replaceChildren(...["mean wait", "P90 wait"].map((metric) => answer.rows.find((r) => r.metric === metric)).filter(Boolean).map((r) =>
      el("span", {}, `${r.metric} `, el("b", {}, r.now.text.split(" (")[0]), el("span", { className: "soft" }, ` (baseline ${r.base.text.split(" (")[0]})`))));
    titled();
  }
  function titled() {
    const trace = $("trace").selectedOptions[0]?.textContent ?? state.trace;
    const what = state.view === "what-if" && !same(state.now, state.base) ? `What if ${words(state.now).toString().replaceAll("&", ", ").replaceAll("+", " ") || "as by default"}` : VIEWS[state.view];
    document.title = `${decodeURIComponent(what)} · ${trace} · fleetlab`;
  }
  function recorded({ scheduler: by, recorded: r }) {
    $("recorded").hidden = !r;
    const trust = $("chip-trust");
    trust.hidden = !r;
    if (!r) return;
    trust.textContent = `Simulated ${short(r.simulated.text)} · recorded ${short(r.recorded.text)}${r.why ? ": find out why →" : by.error && ` · ${by.error}`}`;
    trust.title = r.why || `Mean wait of the ${r.jobs.toLocaleString("en")} jobs of the baseline beside what the log recorded${by.accuracy && `; ${by.accuracy}`}`;
    trust.classList.toggle("amber", Boolean(r.why));
    const side = (name, quantity) => el("div", {}, el("dt", {}, name), el("dd", {}, el("b", {}, quantity.text), el("span", { className: "soft" }, ` ${r.jobs.toLocaleString("en")} jobs`)));
    $("recorded-waits").replaceChildren(side("recorded in the log", r.recorded), side("simulated (baseline)", r.simulated));
    $("recorded-why").textContent = r.why || "Within a quarter of each other.";
  }
  const percentage = (v) => (v === null ? "–" : `${(100 * v).toFixed(1)} %`);
  function mood(r) {
    return ["better", "worse"].includes(r.verdict) ? r.verdict : "unclear";
  }
  const parted = (text) => {
    const [value, rest] = text.split(" (");
    return rest ? [el("b", {}, value), el("span", { className: "soft" }, ` (${rest}`)] : [el("b", {}, value)];
  };
  function row(r) {
    return el("tr", {},
      el("th", { scope: "row" }, r.metric), el("td", {}, ...parted(r.base.text)), el("td", {}, ...parted(r.now.text)),
      el("td", { className: mood(r) }, ...parted(r.change.text), el("span", { className: "soft" }, ` ${r.verdict}`)),
      el("td", { className: "wide-only" }, span(r)));
  }
  // Both intervals on one axis, from 0 where that is near.
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
    box.replaceChildren(el("p", { className: "key" }, el("span", {}, "scenario"), el("span", { className: "b" }, "baseline")), ...rows.map((r) => {
      const svg = shape("svg", { "aria-hidden": "true" });
      svg.append(shape("rect", { class: "b", x: 0, y: 12, height: 7, width: wide(r.base.value) }), shape("rect", { class: "n", x: 0, y: 3, height: 7, width: wide(r.now.value) }));
      for (const [e, y] of [[r.now, 6.5], [r.base, 15.5]])
        if (e.low !== undefined && e.low !== null && e.high !== null) svg.append(shape("line", { x1: wide(e.low), x2: wide(e.high), y1: y, y2: y }));
      return el("div", { className: "bar", title: r.title }, el("span", { className: "name" }, r.name), svg,
        el("span", { className: "amount" }, ...parted(r.text), el("br"), el("span", { className: "soft" }, r.change)));
    }));
  }
  // Drawn by the server, which escapes every name; the page runs no script of such a part.
  function figures(html) {
    const open = [...$("figures").querySelectorAll("figure")].filter((f) => f.querySelector("details[open]")).map((f) => f.id);
    const part = new DOMParser().parseFromString(html, "text/html");
    $("figures").replaceChildren(...[...part.body.childNodes].map((node) => document.adoptNode(node)));
    for (const id of open) { const details = $(id)?.querySelector("details"); if (details) details.open = true; }
    window.fleetlab.live($("figures"));
  }
  function downloads() {
    $("report").href = `/api/report.html?${address(state)}`;
    $("json").href = `/api/result.json?${address(state, { short: true })}`;
  }

  // --- kept runs ---
  const known = new Map(); // rows by address, of what was answered
  const runs = () => [{ s: state.base, base: true }, ...state.kept.map((s) => ({ s }))];
  const key = (s) => address(state, { now: s, short: true });
  function remember(answer, link) {
    known.set(answer.link, answer);
    known.set(link, answer);
    table();
  }
  // The server knows the title of a run once it was simulated.
  const titleOf = (s, current) => known.get(key(s))?.title ?? (same(s, state.base) && current ? current.base_title : words(s).toString().replaceAll("&", ", "));
  function table() {
    $("kept").hidden = !state.kept.length;
    const metrics = ["jobs that cannot run", "mean wait", "P90 wait", "mean JCT", "GPU allocation while jobs arrive"];
    const current = known.get(key(state.now));
    const focused = $("kept-table").contains(document.activeElement) ? document.activeElement.getAttribute("aria-label") : null;
    $("kept-table").tBodies[0].replaceChildren(...runs().map(({ s, base }) => {
      const answer = known.get(key(s));
      const side = answer ? "now" : "base";
      const from = answer || (base ? current : null);
      const cells = metrics.map((metric) => {
        const r = from?.rows.find((one) => one.metric === metric);
        return el("td", {}, ...(r ? parted(r[side].text) : ["…"]));
      });
      const show = el("button", { type: "button" }, "Show");
      show.addEventListener("click", () => { state.now = { ...s }; settle(); changed(); });
      const drop = el("button", { type: "button" }, "Remove");
      drop.addEventListener("click", () => { state.kept = state.kept.filter((one) => one !== s); table(); changed(); $("keep").focus(); });
      const name = `${base ? "baseline: " : ""}${titleOf(s, current)}`;
      for (const button of [show, drop]) button.setAttribute("aria-label", `${button.textContent}: ${name}`);
      return el("tr", { className: same(s, state.now) ? "now" : "" }, el("th", { scope: "row" }, name), ...cells,
        el("td", {}, el("div", { className: "actions" }, show, ...(base ? [] : [drop]))));
    }));
    if (focused) [...$("kept-table").querySelectorAll("button")].find((b) => b.getAttribute("aria-label") === focused)?.focus();
  }
  // Runs that came with the address are simulated one after the other.
  async function fillKept() {
    for (const s of state.kept) {
      if (known.has(key(s))) continue;
      const link = key(s);
      try {
        const answer = await new Operation({ kind: "refine", link }, () => {}).over;
        if (answer) known.set(link, answer);
      } catch (error) { trouble(error); }
      table();
    }
  }

  // --- presets: four questions to begin with, each with one sentence as answer, simulated while nothing else is asked ---
  const RACK = 8; // nodes
  const MORE = 10;
  const site = () => opened?.scheduler ?? null;
  // Whether the words of a policy schedule: on a site with a scheduler they replace it.
  const simple = (s) => s.scheduler === "event" || (!site() && !s.scheduler) || (!s.scheduler && POLICY.some((name) => s[name] !== option(name).default));
  function presets() {
    const group = opened.nodes[0];
    const rack = Math.min(RACK, Math.max(1, Math.floor(group.nodes / 2)));
    const more = Math.min(MORE, Math.max(1, Math.ceil(group.nodes / 5)));
    const with_ = (change) => ({ ...state.base, ...change });
    const nodes = (edit) => [...edits(state.base.nodes), `${group.name} ${edit}`].join(", ");
    const own = simple(state.base) ? [{ name: "EASY backfill", about: "Later jobs run first only if the first in the queue is not delayed", now: with_({ backfill: "easy" }) }]
      : state.base.scheduler ? [] : (site()?.changes ?? []).slice(0, 2).map((one) => ({ name: capital(one.title), about: `${capital(one.action)}.`, now: with_({ scheduler: one.scheduler }) }));
    return [
      ...own,
      { name: `Add ${more} node${more > 1 ? "s" : ""}`, about: `${more} more ${group.name} node${more > 1 ? "s" : ""}`, now: with_({ nodes: nodes(`+${more}`) }) },
      { name: "+30 % load", about: "The same jobs, arriving at 1.3 times the rate", now: with_({ load: String(Math.round(1300 * Number(state.base.load)) / 1000) }) },
      { name: "Lose a rack", about: `${rack} ${group.name} node${rack > 1 ? "s" : ""} fewer`, now: with_({ nodes: nodes(`-${rack}`) }) },
    ];
  }
  function makePresets() {
    const held = document.activeElement?.closest("#presets") ? document.activeElement.id : null;
    $("presets").replaceChildren(...(opened?.nodes.length ? presets() : []).map((preset, k) => {
      const answer = known.get(key(preset.now));
      const button = el("button", { type: "button", className: "preset", id: `preset-${k}` }, el("b", {}, preset.name),
        el("span", { className: "soft" }, answer ? capital(answer.headline.slice(answer.headline.indexOf(": ") + 2)) : preset.about),
        el("span", { className: "apply" }, same(preset.now, state.now) ? "Applied: take it back" : "Apply"));
      button.setAttribute("aria-pressed", String(same(preset.now, state.now)));
      button.addEventListener("click", () => { state.now = same(preset.now, state.now) ? { ...state.base } : { ...preset.now }; settle(); changed(); });
      return el("li", {}, button);
    }));
    if (held) $(held)?.focus();
  }
  let filling = null;
  async function fillPresets() {
    if (filling || !opened) return;
    for (const preset of presets()) {
      const link = key(preset.now);
      if (going || refining || state.view !== "what-if") return;
      if (known.has(link)) continue;
      filling = new Operation({ kind: "refine", link }, () => {});
      const answer = await filling.over.catch(() => null);
      const again = filling.stopped; // for what the visitor asked: later
      filling = null;
      if (again) setTimeout(fillPresets, SOON);
      if (!answer) return;
      known.set(link, answer);
      makePresets();
    }
  }

  // --- controls ---
  const POLICY = ["order", "backfill", "placement", "estimate", "sharing", "preemption", "quota"];
  const option = (name) => options.options.find((o) => o.name === name);
  function control(o) {
    const id = `option-${o.name}`;
    if (o.kind === "choice") return el("select", { id }, ...o.choices.map((c) => el("option", { value: c.name }, o.name === "scheduler" ? c.meaning : c.name || "default")));
    return o.kind === "flag" ? el("input", { id, type: "checkbox" }) : el("input", { id, type: "text", placeholder: o.example });
  }
  // Words of a policy would replace the scheduler of the site: they go with the choice of a simple one alone.
  function only() {
    if ((site() && !state.now.scheduler) || !simple(state.now)) for (const name of POLICY) state.now[name] = option(name).default;
  }
  function optionRow(o) {
    const input = control(o);
    input.addEventListener("change", () => {
      state.now[o.name] = o.kind === "flag" ? String(input.checked) : input.value.trim() || o.default;
      if (o.name === "nodes" && opened) makeNodes();
      if (o.name === "scheduler") only();
      if (POLICY.includes(o.name) && site() && !state.now.scheduler) state.now.scheduler = "event";
      if (o.name === "scheduler" || POLICY.includes(o.name)) settle();
      changed();
    });
    const again = resetButton(capital(o.name), `reset-${o.name}`, () => {
      state.now[o.name] = o.default;
      if (o.name === "scheduler") only();
      settle();
      changed();
      input.focus();
    });
    const meaning = el("span", { className: "soft", id: `means-${o.name}` }, ...(o.kind === "choice" ? [] : prose(o.help)));
    const labels = { speed_classes: "Speed classes", warm_up: "Warm-up" };
    input.setAttribute("aria-describedby", meaning.id);
    return el("div", { className: "option", id: `row-${o.name}` }, el("label", { htmlFor: input.id }, labels[o.name] ?? capital(o.name).replaceAll("_", " ")), input, again, meaning);
  }
  // Rules are compiled in the background from the start; until one is, its first use takes longer.
  const LOOK = 5000; // ms
  async function watchCompilation() {
    while (options.compiling.length) {
      mark();
      await new Promise((done) => { setTimeout(done, LOOK); });
      try { options.compiling = (await ask("/api/options")).compiling; } catch { return; }
    }
    mark();
  }
  const compiling = (o) => (options.compiling.includes(`${o.name} ${state.now[o.name]}`) ? " (being compiled: its first use takes longer)" : "");
  function makeOptions() {
    const rest = options.options.map((o) => o.name).filter((name) => ![...POLICY, "load", "nodes", "scheduler"].includes(name));
    for (const [box, names] of [["scheduler-choice", ["scheduler"]], ["policy", POLICY], ["node-edits", ["nodes"]], ["others", rest]])
      $(box).replaceChildren(...names.map((name) => optionRow(option(name))));
  }
  // Back to the value that the trace has; shown only where the control has another one.
  function resetButton(name, id, action) {
    const button = el("button", { type: "button", id, className: "again", title: `Reset ${name}`, hidden: true }, "↺");
    button.setAttribute("aria-label", `Reset ${name}`);
    button.addEventListener("click", action);
    return button;
  }
  // A slider for what is usual, a number beside it for any value that the simulator takes.
  function slider(id, name, { min, max, least, most, step, value, original, text, unit, move }) {
    const range = el("input", { id, type: "range", min, max, step, value });
    const typed = el("input", { id: `${id}-number`, type: "number", min: least, max: most, step: "any", value, required: true });
    const said = el("span", { className: "soft" });
    typed.setAttribute("aria-label", `${name}, as a number`);
    const again = resetButton(name, `${id}-reset`, () => { put(original); move(original); range.focus(); });
    function put(v) {
      range.value = typed.value = v;
      said.textContent = unit(v);
      range.setAttribute("aria-valuetext", text(v));
      again.hidden = v === original;
    }
    range.addEventListener("input", () => { const v = Number(range.value); put(v); move(v); });
    typed.addEventListener("change", () => {
      const v = step === 1 ? Math.round(typed.valueAsNumber) : typed.valueAsNumber;
      if (!typed.reportValidity()) return put(value);
      value = v;
      put(v);
      return move(v);
    });
    put(value);
    return [el("label", { htmlFor: id }, name), said, typed, again, range];
  }
  const number = (v) => (v < 10 ? Number(v.toPrecision(2)) : Math.round(v)).toLocaleString("en");
  const percent = (v, of) => (of && v !== of ? ` (${v > of ? "+" : "−"}${number((100 * Math.abs(v - of)) / of)} %)` : "");
  function settle() {
    for (const o of options.options) {
      const input = $(`option-${o.name}`);
      if (o.name === "scheduler") schedulers(input);
      if (o.kind === "flag") input.checked = state.now[o.name] === "true";
      else if (input) input.value = state.now[o.name];
    }
    $("row-load").replaceChildren(...slider("load", "Arrival rate", {
      min: 0.5, max: 2, least: 0.001, most: 1000, step: 0.05, value: Number(state.now.load), original: Number(option("load").default),
      text: (v) => `${v.toFixed(2)} × that of the trace`, unit: () => "× trace",
      move: (v) => { state.now.load = String(Math.round(v * 1000) / 1000); changed("load"); },
    }));
    if (opened) makeNodes();
    makePresets();
    mark();
    downloads();
  }
  // The scheduler of the site comes first, by its name; the words of a policy are there where they schedule.
  function schedulers(input) {
    const own = site();
    const others = option("scheduler").choices.filter((c) => c.name !== (own?.name ?? ""));
    input.replaceChildren(el("option", { value: "" }, own ? `As configured on your cluster (${own.title})` : "Simple policy"),
      ...others.filter((c) => c.name && (own || c.name !== "event")).map((c) => el("option", { value: c.name }, c.meaning)),
      ...(state.now.scheduler.startsWith("{") ? [el("option", { value: state.now.scheduler }, `${own?.title ?? "A scheduler"} with other settings`)] : []));
    $("policy").hidden = !simple(state.now);
    $("ask-conf").hidden = !own?.lines;
    $("ask-quotas").hidden = !own?.quotas.length;
    conf();
    quotas();
  }
  const change = () => { try { const found = JSON.parse(state.now.scheduler); return found.kind === "site" ? found : {}; } catch { return {}; } };
  function changeSite(changes) {
    const found = Object.fromEntries(Object.entries({ kind: "site", ...change(), ...changes }).filter(([, value]) => value.length));
    state.now.scheduler = Object.keys(found).length > 1 ? JSON.stringify(found) : "";
    for (const name of POLICY) state.now[name] = option(name).default;
    settle();
    changed();
  }

  // --- what if this slurm.conf? Lines that differ are sent, all else stays as it is on the cluster ---
  const linesOf = (text) => text.split("\n").map((line) => line.trim()).filter((line) => line && !line.startsWith("#"));
  const keyOf = (line) => line.split("=")[0].toLowerCase() + (/^(partitionname|nodename|qos|account)=/i.test(line) ? line.split(/[=\s]/)[1] : "");
  const differing = () => { const before = new Set(linesOf(site()?.lines ?? "")); return linesOf($("conf").value).filter((line) => !before.has(line)); };
  function conf() {
    if (document.activeElement === $("conf")) return;
    const now = new Map(linesOf(site()?.lines ?? "").map((line) => [keyOf(line), line]));
    for (const line of linesOf(change().conf ?? "")) now.set(keyOf(line), line);
    $("conf").value = [...now.values()].join("\n");
    diff();
  }
  function diff() {
    const before = new Map(linesOf(site()?.lines ?? "").map((line) => [keyOf(line), line]));
    const item = (kind, sign, line) => el("li", { className: kind }, el("span", { className: "only-read" }, kind === "gone" ? "removed: " : "added: "), `${sign} ${line}`);
    $("conf-lines").replaceChildren(...differing().flatMap((line) => [...(before.has(keyOf(line)) ? [item("gone", "−", before.get(keyOf(line)))] : []), item("new", "+", line)]));
    $("conf-run").disabled = differing().join("\n") === (change().conf ?? "");
  }
  $("conf").addEventListener("input", diff);
  $("conf-run").addEventListener("click", () => changeSite({ conf: differing().join("\n") }));
  $("conf-reset").addEventListener("click", () => changeSite({ conf: "" }));
  $("conf-file").addEventListener("change", async () => {
    const [file] = $("conf-file").files;
    if (file) { $("conf").value = await file.text(); diff(); $("conf").focus(); }
    $("conf-file").value = "";
  });

  // --- what if these quotas? A row for each queue, flavor and resource ---
  const cellOf = (v) => (v === null || v === undefined ? "" : String(v));
  const sameRow = (a, b) => a.queue === b.queue && a.flavor === b.flavor && a.resource === b.resource;
  function quotas() {
    const rows = site()?.quotas ?? [];
    const names = [...new Set(rows.flatMap((row) => Object.keys(row.amounts)))];
    const edited = change().amounts ?? [];
    $("quotas").tHead.replaceChildren(el("tr", {}, ...["Queue", "Flavor", "Resource", ...names].map((name) => el("th", { scope: "col" }, name))));
    $("quotas").tBodies[0].replaceChildren(...rows.map((row, k) => el("tr", {}, el("th", { scope: "row" }, row.queue), el("td", {}, row.flavor), el("td", {}, row.resource), ...names.map((name) => {
      if (!(name in row.amounts)) return el("td", {}, "");
      const now = edited.find((one) => sameRow(one, row))?.amounts ?? {};
      const input = el("input", { type: "number", min: 0, step: "any", id: `quota-${k}-${name}`, value: cellOf(name in now ? now[name] : row.amounts[name]) });
      input.dataset.was = cellOf(row.amounts[name]);
      input.setAttribute("aria-label", `${name} of ${row.queue}, ${row.resource}`);
      return el("td", {}, input);
    }))));
  }
  $("quotas-run").addEventListener("click", () => {
    const amounts = (site()?.quotas ?? []).flatMap((row, k) => {
      const now = Object.keys(row.amounts).map((name) => [name, $(`quota-${k}-${name}`)]).filter(([, input]) => input.value !== input.dataset.was);
      return now.length ? [{ ...row, amounts: Object.fromEntries(now.map(([name, input]) => [name, input.value === "" ? null : Number(input.value)])) }] : [];
    });
    changeSite({ amounts });
  });
  $("quotas-reset").addEventListener("click", () => changeSite({ amounts: [] }));

  // --- each question has a panel of its own ---
  function panel(name, open) {
    const button = document.querySelector(`[data-panel="${name}"]`);
    button.setAttribute("aria-expanded", String(open));
    $(`panel-${name}`).hidden = !open;
  }
  for (const button of document.querySelectorAll("[data-panel]")) {
    button.setAttribute("aria-controls", `panel-${button.dataset.panel}`);
    panel(button.dataset.panel, false);
    button.addEventListener("click", () => panel(button.dataset.panel, button.getAttribute("aria-expanded") !== "true"));
  }

  // Edits of nodes, as `fleetlab simulate --nodes` has them: `T4 400, V100 -25%`. A slider writes one such edit.
  const EDIT = /^(?:(\S.*?)(?:\s+|\s*:\s*|(?=\s*[+-])))?([+-])?\s*(\d+(?:\.\d+)?)\s*(%)?$/;
  const edits = (text) => text.split(",").map((part) => part.trim()).filter(Boolean);
  function nodesOf(group, text) {
    return edits(text).reduce((n, part) => {
      const [, name, sign, number, of] = part.match(EDIT) || [];
      if (number === undefined || (name ? name !== group.name : !of)) return n;
      return sign ? n + (sign === "+" ? 1 : -1) * (of ? Math.round((n * number) / 100) : Number(number)) : Number(number);
    }, group.nodes);
  }
  function resize(group, count) {
    const others = edits(state.now.nodes).filter((part) => part.match(EDIT)?.[1] !== group.name);
    if (count !== nodesOf(group, others.join(","))) others.push(`${group.name} ${count}`);
    state.now.nodes = others.join(", ");
    $("option-nodes").value = state.now.nodes;
    changed(`nodes ${group.name}`);
  }
  function makeNodes() {
    $("nodes").replaceChildren(...opened.nodes.map((group, k) => el("div", { className: "slider", id: `nodes-row-${k}` }, ...slider(`nodes-${k}`, group.name, {
      min: 0, max: Math.max(4, 2 * group.nodes), least: 0, most: 50000, step: 1, value: nodesOf(group, state.now.nodes), original: group.nodes,
      text: (v) => `${v.toLocaleString("en")}${percent(v, group.nodes)}`, unit: (v) => percent(v, group.nodes),
      move: (v) => resize(group, v),
    }))));
  }
  // The series of a trace that can be used as estimates.
  function makeEstimates() {
    const names = [...option("estimate").choices.map((c) => c.name), ...opened.estimates];
    if (!names.includes(state.now.estimate)) names.push(state.now.estimate);
    $("option-estimate").replaceChildren(...names.map((name) => el("option", { value: name }, name)));
  }
  function mark() {
    for (const o of options.options) {
      const again = $(`reset-${o.name}`);
      if (again) again.hidden = state.now[o.name] === o.default;
      $(`row-${o.name}`)?.classList.toggle("changed", state.now[o.name] !== state.base[o.name]);
      if (o.kind === "choice") $(`means-${o.name}`).textContent = (o.choices.find((c) => c.name === state.now[o.name])?.meaning ?? "") + compiling(o);
    }
    $("row-estimate").classList.toggle("idle", ![state.now.order, state.now.backfill].some((name) => options.uses_estimate.includes(name)));
    (opened ? opened.nodes : []).forEach((group, k) => $(`nodes-row-${k}`)?.classList.toggle("changed", nodesOf(group, state.now.nodes) !== nodesOf(group, state.base.nodes)));
    $("rebase").disabled = same(state.now, state.base);
    $("reset").disabled = same(state.now, fresh()) && same(state.base, fresh());
    $("undo").disabled = steps.at === 0;
    $("redo").disabled = steps.at >= steps.last;
    $("keep").disabled = state.kept.length >= KEPT || state.kept.some((s) => same(s, state.now));
    for (const link of document.querySelectorAll("nav a[data-view]"))
      if (link.dataset.view === state.view) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  $("keep").addEventListener("click", () => {
    state.kept.push({ ...state.now });
    table();
    record();
    mark();
    downloads();
    say("Pinned: the run is in the table of pinned runs and in the link.");
  });
  $("rebase").addEventListener("click", () => { state.base = { ...state.now }; known.clear(); changed(); fillKept(); });
  $("reset").addEventListener("click", () => { state.now = fresh(); state.base = fresh(); settle(); changed(); });
  $("cancel").addEventListener("click", () => { wanted = going ? going.link : wanted; shownOperation?.stop(); });
  $("share").addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(location.href); say("Link copied."); } catch { say("The link is the address of this page."); }
  });
  $("controls").addEventListener("submit", (event) => event.preventDefault());

  // --- the trace ---
  function listed() {
    const choices = [...options.traces];
    if (!choices.some((t) => t.trace === state.trace)) choices.push({ trace: state.trace, title: opened?.title ?? (state.trace.startsWith("upload:") ? "your upload" : state.trace) });
    $("trace").replaceChildren(...choices.map((t) => el("option", { value: t.trace }, t.title)));
    $("trace").value = state.trace;
  }
  $("trace").addEventListener("change", () => take($("trace").value));
  async function take(trace) {
    if (trace !== state.trace) {
      Object.assign(state, { trace, job: "", submitted: "", now: fresh(), base: fresh(), kept: [] });
      record();
    }
    known.clear();
    opened = null;
    described = null;
    listed();
    $("nodes").replaceChildren(el("p", { className: "soft" }, "…"));
    for (const name of ["chip-scheduler", "chip-trust", "chip-assumed", "chip-synthetic", "warnings", "settings"]) $(name).hidden = true;
    $("tiles").replaceChildren();
    makePresets();
    await view();
  }
  async function open() {
    const operation = new Operation({ kind: "open", trace: state.trace }, progressed);
    busy(operation, "Opening the trace");
    const result = await operation.over;
    if (!result) { idle("Cancelled. Choose a trace."); return false; }
    opened = result;
    listed();
    titled();
    makeEstimates();
    const banner = opened.warnings;
    $("warnings").hidden = !banner.length;
    $("warnings").replaceChildren(...banner.map((line) => el("p", {}, line)));
    $("chip-assumed").hidden = !opened.assumed;
    $("chip-assumed").textContent = `Assumed cluster: ${opened.nodes.map((n) => `${n.nodes} × ${n.name}`).join(", ")}`;
    $("chip-assumed").title = opened.assumed;
    $("chip-synthetic").hidden = !opened.synthetic;
    const of = (metric) => opened.summary.find((e) => e.metric === metric)?.value ?? 0;
    const total = (what) => opened.nodes.reduce((n, t) => n + t[what], 0).toLocaleString("en");
    $("about").textContent = [opened.source, `${total("nodes")} nodes, ${total("gpus")} GPUs`, `${of("jobs").toLocaleString("en")} jobs in ${duration(of("submissions span"))}`].join(" · ");
    window.fleetlab.showRecorded(opened.recorded, opened.nodes.reduce((n, t) => n + t.gpus, 0));
    settle();
    return true;
  }
  let described = null; // the trace whose description is shown
  async function describe() {
    if (described === state.trace) return idle("");
    $("description").replaceChildren();
    const operation = new Operation({ kind: "describe", trace: state.trace }, progressed);
    busy(operation, "Describing the trace");
    const result = await operation.over;
    if (!result) return idle("Cancelled.");
    const part = new DOMParser().parseFromString(result.html, "text/html");
    const notes = el("ul", { className: "notes" }, ...opened.notes.map((line) => el("li", {}, ...prose(line))));
    $("description").replaceChildren(el("h2", {}, "Summary"), ...[...part.body.childNodes].map((node) => document.adoptNode(node)), el("h2", {}, "Notes"), notes);
    window.fleetlab.live($("description"));
    described = state.trace;
    return idle("");
  }
  async function view() {
    $("what-if").hidden = state.view !== "what-if";
    for (const name of ["tiles", "stage"]) $(name).hidden = !["what-if", "job"].includes(state.view);
    $("headline").hidden = state.view !== "what-if";
    $("stage").classList.toggle("story", state.view === "job");
    $("description").hidden = state.view !== "trace";
    $("advice").hidden = state.view !== "advice";
    $("job").hidden = state.view !== "job";
    mark();
    titled();
    try {
      trouble(null);
      if (!opened && !(await open())) return;
      if (state.view === "trace") await describe();
      else if (state.view === "advice") await window.fleetlab.advise("diagnose");
      else if (state.view === "job") { window.fleetlab.showTimeline(address(state, { short: true }), VISITOR); await window.fleetlab.explain(state.job); }
      else { play(); table(); fillKept(); }
    } catch (error) { trouble(error); }
  }
  function go(to) {
    if (state.view === to) return undefined;
    state.view = to;
    record();
    $("main").focus({ preventScroll: true });
    return view();
  }
  for (const link of document.querySelectorAll("nav a[data-view]"))
    link.addEventListener("click", (event) => { event.preventDefault(); go(link.dataset.view); });
  $("job-close").addEventListener("click", () => go("what-if"));
  $("more-advice").addEventListener("click", () => go("advice"));
  addEventListener("popstate", () => {
    const before = state.trace;
    state = fromAddress();
    arrive();
    settle();
    if (state.trace !== before) { take(state.trace); return; }
    if (state.view === "what-if") stale("The run of the new settings is in progress");
    view();
  });

  // --- what other scripts of the page use ---
  window.fleetlab.page = {
    $, el, prose, ask, Operation, Refused, busy, progressed, idle, say, trouble, duration, capital, take, titled,
    get options() { return options; }, get state() { return state; }, get opened() { return opened; },
    address: () => address(state, { short: true }), edits,
    // Take words of a scenario over, and show it.
    apply(change) { Object.assign(state.now, change); state.view = "what-if"; settle(); changed(); view(); },
    // Tell the story of the job that some words mean; without words, list the longest waits.
    showJob(words) { Object.assign(state, { view: "job", job: words }); record(); view(); $("main").focus({ preventScroll: true }); },
  };

  (async () => {
    try {
      options = await ask("/api/options");
      state = fromAddress();
      arrive();
      makeOptions();
      window.fleetlab.uploads();
      window.fleetlab.advice();
      window.fleetlab.oneJob();
      listed();
      settle();
      watchCompilation();
      await view();
    } catch (error) { trouble(error); }
  })();
})();
