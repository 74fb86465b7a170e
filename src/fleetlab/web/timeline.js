// The timeline on the page: tiles come from the server, for the scenario and for the baseline.
"use strict";
(() => {
  const { Timeline, inflate } = window.fleetlab;
  let [timeline, shown, asked] = [null, "", 0];
  const windowed = () => { // in the address: seconds of the log
    const [from, to] = (new URLSearchParams(location.search).get("submitted") ?? "").split("..");
    return from ? [Number(from), to ? Number(to) : Infinity] : null;
  };

  const from = (side, link, visitor) => {
    const ask = async (path) => {
      const answer = await fetch(`/api/timeline/${side}/${path}?${link}`, { headers: { "Fleetlab-Visitor": visitor } });
      if (!answer.ok) throw new Error((await answer.json()).error);
      return answer.json();
    };
    return {
      about: () => ask("about"),
      panels: () => ask("panels"),
      at: (first, end, time) => ask(`jobs/${first}/${end}/${time.toFixed(3)}`),
      async tile(key, planes) {
        const found = (await ask(`tile/${key}/${planes.join(",")}`)).planes;
        const bytes = await Promise.all(planes.map((name) => (found[name] ? inflate(Uint8Array.from(atob(found[name]), (c) => c.charCodeAt(0))) : null)));
        return Object.fromEntries(planes.map((name, k) => [name, bytes[k]]));
      },
    };
  };
  // What the log recorded needs no simulation: it stands where the timeline will be, until that is there.
  let plots = [];
  window.fleetlab.showRecorded = (recorded, gpus) => {
    const place = document.getElementById("recorded-run");
    for (const u of plots) u.destroy();
    plots = [];
    place.hidden = !recorded;
    document.querySelector("#cluster-timeline .timeline").hidden = Boolean(recorded); // it is of the trace before
    if (!recorded) return;
    const line = (text) => Object.assign(document.createElement("p"), { className: "timeline-caption", textContent: text });
    const soft = getComputedStyle(document.documentElement).getPropertyValue("--soft") || "#666";
    const color = (k) => getComputedStyle(place).getPropertyValue(`--s${k}`);
    const at = recorded.gpus.map((_, k) => k * recorded.width);
    place.replaceChildren();
    for (const [text, values, most, k] of [["As the log recorded it: GPUs that jobs held", recorded.gpus, gpus, 0], ["As the log recorded it: jobs waiting", recorded.waiting, 1, 1]]) {
      place.append(line(text));
      const axis = { stroke: soft, grid: { stroke: soft, width: 0.3 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
      plots.push(new uPlot({
        width: place.clientWidth, height: 150, legend: { show: false }, cursor: { show: false },
        scales: { x: { time: false }, y: { range: (u, low, high) => [0, Math.max(most, high)] } },
        axes: [{ ...axis, values: (u, splits) => splits.map(window.fleetlab.duration) }, { ...axis, size: 96 }],
        series: [{}, { stroke: color(k), fill: color(k), width: 0, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }],
      }, [at, values], place));
    }
  };
  // Draw the run of a link; the view stays from one what-if to the next, and the window is that of the address.
  window.fleetlab.showTimeline = async (answered, visitor) => {
    timeline?.show(windowed());
    const params = new URLSearchParams(answered);
    params.delete("submitted"); // it changes what is measured, not the run
    const link = params.toString();
    if (link === shown) return;
    shown = link;
    const mine = ++asked;
    const place = document.querySelector("#cluster-timeline .timeline");
    try {
      const sources = [from("now", link, visitor)];
      const first = await sources[0].about();
      const abouts = [first.about];
      if (first.compared) {
        sources.push(from("base", link, visitor));
        abouts.push({ ...(await sources[1].about()).about, label: "Before: the baseline" });
        abouts[0].label = "After: the change";
      }
      if (mine !== asked) return;
      performance.mark("timeline-about");
      document.getElementById("recorded-run").hidden = true;
      place.hidden = false;
      if (timeline) timeline.set(abouts, sources); else { place.replaceChildren(); timeline = new Timeline(place, abouts, sources, { stories: true }); }
      timeline.show(windowed());
      window.fleetlab.pageTimeline = timeline;
      for (const [k, source] of sources.entries()) {
        const { panels, meanings, planes, labels } = await source.panels();
        if (mine !== asked) return;
        Object.assign(timeline.runs[k].about, { planes, labels });
        timeline.panels(k, panels, meanings);
      }
    } catch (error) {
      if (mine !== asked) return;
      shown = "";
      timeline = null;
      place.hidden = false;
      place.replaceChildren(Object.assign(document.createElement("p"), { className: "soft", textContent: `No timeline: ${error.message}` }));
    }
  };
})();
