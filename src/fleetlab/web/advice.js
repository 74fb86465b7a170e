// What to do about waiting: one table of all recommendations, the cheapest first, from three studies.
"use strict";
window.fleetlab.advice = () => {
  const { $, el, prose, Operation, busy, progressed, idle, trouble, address, capital, apply } = window.fleetlab.page;
  const WORDS = { diagnose: "Simulating one change after the other", capacity: "Searching the smallest cluster", calibrate: "Comparing with the log" };
  const answers = new Map(); // by study
  let about = ""; // the scenario that they are of
  let running = null;

  const rank = (row) => [row.verdict === "not decided" ? 1 : 0, row.tier, row.cost, row.effect.value ?? 0];
  function order(a, b) {
    const [one, other] = [rank(a), rank(b)];
    const k = one.findIndex((value, at) => value !== other[at]);
    return k < 0 ? 0 : one[k] - other[k];
  }
  function line(row) {
    const attempt = el("button", { type: "button" }, "Apply");
    attempt.setAttribute("aria-label", `Apply: ${row.action}`);
    attempt.addEventListener("click", () => apply(row.words));
    const sure = row.verdict === "not decided" ? " (not decided)" : "";
    return el("tr", {}, el("td", {}, capital(row.action)), el("td", {}, `${row.effect.text}${sure}`), el("td", {}, row.requires), el("td", {}, row.cost_text),
      el("td", {}, ...(row.words ? [attempt] : [])));
  }
  function show() {
    const rows = [...answers.values()].flatMap((answer) => answer.rows).sort(order);
    $("advice-table").tBodies[0].replaceChildren(...rows.map(line));
    for (const study of Object.keys(WORDS)) $(`advice-${study}`).replaceChildren(...(answers.get(study)?.findings ?? []).map((text) => el("li", {}, ...prose(text))));
  }
  window.fleetlab.advise = async (study) => {
    const link = address();
    if (link !== about) { answers.clear(); about = link; running?.stop(); show(); }
    if (study === "diagnose" && answers.has(study)) { idle(""); return; }
    const operation = new Operation({ kind: "advise", link, study, ...(study === "capacity" ? { goal: $("goal").value.trim() } : {}) }, (message) => { if (running === operation) progressed(message); });
    running?.stop();
    running = operation;
    busy(operation, WORDS[study]);
    try {
      const answer = await operation.over;
      if (running !== operation) return;
      running = null;
      if (answer && link === about) answers.set(study, answer);
      show();
      idle(answer ? `${answer.rows.length.toLocaleString("en")} change${answer.rows.length === 1 ? "" : "s"} simulated.` : "Cancelled.");
    } catch (error) {
      if (running === operation) { running = null; trouble(error); }
    }
  };
  for (const study of ["capacity", "calibrate"])
    $(`ask-${study}`).addEventListener("click", () => { trouble(null); window.fleetlab.advise(study); });
};
