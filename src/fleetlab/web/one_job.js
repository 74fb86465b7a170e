// One job: found by words or among the longest waits, then its story beside what the log recorded.
"use strict";
window.fleetlab.oneJob = () => {
  const { $, el, prose, Operation, busy, progressed, idle, trouble, address, duration, capital, showJob } = window.fleetlab.page;
  let running = null;
  let shown = ""; // the question whose answer is shown
  const SOONER = "what would have started it sooner";

  const number = (v) => v.toLocaleString("en", { maximumFractionDigits: 2 });
  const words = (name) => name.replaceAll("_", " ");
  const known = (v, text = duration) => (v === null || v === undefined ? "–" : text(v));
  function opener(text, meant) {
    const button = el("button", { type: "button" }, text);
    button.setAttribute("aria-label", `The story of job ${text}`);
    button.addEventListener("click", () => showJob(meant));
    return button;
  }
  const called = (row) => (row.job === null ? "from before" : opener(row.name || `#${row.job}`, row.name || `#${row.job}`));
  function part(title, heads, rows, below = "") {
    if (!rows.length) return [];
    const table = el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, cell))))));
    table.dataset.live = "1";
    const scroll = el("div", { className: "scroll", tabIndex: 0 }, table);
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", title);
    return [el("section", {}, el("h2", {}, title), scroll, ...(below ? [el("p", { className: "soft" }, below)] : []))];
  }
  const firstOf = (rows, count) => (count > rows.length ? `The first ${rows.length} of ${number(count)}.` : "");

  // --- several jobs ---
  function candidates(answer) {
    const cells = (row) => [opener(row.name || `#${row.job}`, row.words), row.user ?? "–", row.group ?? "–", number(row.gpus), duration(row.wait), ...(told ? [known(row.recorded)] : []), words(row.reason) || "–"];
    const told = answer.found.some((row) => row.recorded !== null);
    return part(answer.job ? "Jobs that are meant" : "The longest waits", ["Job", "User", "Group", "GPUs", told ? "Wait, simulated" : "Wait", ...(told ? ["Wait, recorded"] : []), "Main reason"], answer.found.map(cells));
  }

  // --- one job ---
  function beside(job) {
    const log = job.recorded;
    const ran = log.start !== null && log.end !== null ? log.end - log.start : null;
    const rows = [["Wait", known(job.wait), known(log.wait)], ["Run time", known(job.runtime), known(ran)],
      ["Start after the first submission", known(job.start), known(log.start)]];
    return part("Simulated, and recorded in the log", ["Of the job", "Simulated", "Recorded"], rows, log.wait === null ? "The log recorded no wait of this job." : "");
  }
  function reasons(tables) {
    const meaning = new Map((tables.segments ?? []).map((row) => [row.reason, row.meaning]));
    return part("Why it waited", ["Reason", "Wait", "Meaning"], (tables["by reason"] ?? []).map((row) => [words(row.reason), duration(row.wait), meaning.get(row.reason)]));
  }
  function others(tables, job, meanings) {
    const after = (t) => known(t, (v) => `${duration(v - job.submit)} after it was submitted`);
    const holders = tables.holders ?? [], heads = tables.heads ?? [], passed = tables.overtakers ?? [], near = tables.neighbors ?? [];
    return [
      ...part("Who held what it needed", ["Job", "User", "GPUs", "How", "Of its wait", "GPU-hours"],
        holders.map((r) => [called(r), r.user ?? "–", number(r.GPUs), capital(meanings[r["held by"]] ?? r["held by"]), duration(r.wait), number(r["GPU-hours"])]), firstOf(holders, job.counts.holders)),
      ...part("Who was at the head of the queue while it fitted", ["Job", "User", "GPUs", "Of its wait"],
        heads.map((r) => [called(r), r.user ?? "–", number(r.GPUs), duration(r.wait)]), firstOf(heads, job.counts.heads)),
      ...part("Who passed it", ["Job", "User", "GPUs", "How", "Started", "GPU-hours"],
        passed.map((r) => [called(r), r.user ?? "–", number(r.GPUs), capital(r.how), after(r.start), number(r["GPU-hours"])]), firstOf(passed, job.counts.overtakers)),
      ...part("Where it ran", ["Node", "GPUs", "Instances", "From", "For"],
        (tables.placement ?? []).map((r) => [r.node, r.GPUs || "–", number(r.instances), after(r.from), known(r.until, (v) => duration(v - r.from))])),
      ...part("Who shared its GPUs", ["Job", "User", "GPUs shared", "Together", "Of its run"],
        near.map((r) => [called(r), r.user ?? "–", number(r["GPUs shared"]), duration(r["together, s"]), `${(100 * r["share of run"]).toFixed(0)} %`])),
    ];
  }
  function sooner(tables, job, tried) {
    if (!job.wait) return [];
    const rows = tables[SOONER] ?? [];
    if (rows.length) return part("What would have started it sooner", ["Change", "Wait", "Difference", "Verdict"], rows.map((r) => [capital(r.change), known(r.wait), known(r["wait change"]), r.verdict]), "Each change of this job alone, simulated; all other jobs stay as they are.");
    const ask = el("button", { type: "button", id: "ask-sooner" }, "Simulate other requests");
    ask.addEventListener("click", () => { trouble(null); window.fleetlab.explain(window.fleetlab.page.state.job, true); });
    return [el("section", {}, el("h2", {}, "What would have started it sooner"), tried ? el("p", {}, "There is no other request to try.") : ask)];
  }
  function story(answer, tried) {
    const { job, tables, notes } = answer.result;
    const strip = new DOMParser().parseFromString(answer.strip, "text/html"); // drawn by the server, which escapes every name
    return [
      el("div", { className: "figures" }, ...[...strip.body.childNodes].map((node) => document.adoptNode(node))),
      ...beside(job), ...reasons(tables), ...sooner(tables, job, tried), ...others(tables, job, answer.meanings),
      ...(notes.length ? [el("section", {}, el("h2", {}, "Notes"), el("ul", { className: "notes" }, ...notes.map((line) => el("li", {}, line))))] : []),
    ];
  }
  function show(answer, tried) {
    const { job } = answer.result;
    $("job-story").replaceChildren(...(job ? [el("h2", {}, `Job ${job.name ?? `#${job.job}`}`)] : []),
      el("ul", { className: "findings" }, ...answer.findings.map((line) => el("li", {}, ...prose(line)))), ...(job ? story(answer, tried) : candidates(answer)));
    window.fleetlab.live($("job-story"));
  }

  window.fleetlab.explain = async (job, whatIf = false) => {
    const link = address();
    const question = JSON.stringify([link, job]);
    $("job-words").value = job;
    running?.stop();
    running = null;
    if (question === shown && !whatIf) { idle(""); return; }
    if (question !== shown) $("job-story").replaceChildren();
    shown = question;
    const operation = new Operation({ kind: "explain", link, job, what_if: whatIf }, (message) => { if (running === operation) progressed(message); });
    running = operation;
    busy(operation, whatIf ? "Simulating the job with other requests" : "Simulating");
    try {
      const answer = await operation.over;
      if (running !== operation) return;
      running = null;
      if (answer) show(answer, whatIf); else if (!whatIf) shown = "";
      idle(answer ? "Simulated." : "Cancelled.");
    } catch (error) {
      if (running !== operation) return;
      running = null;
      if (!whatIf) shown = "";
      trouble(error);
    }
  };
  $("job-search").addEventListener("submit", (event) => { event.preventDefault(); showJob($("job-words").value.trim()); });
  $("job-longest").addEventListener("click", () => showJob(""));
};
