// The timeline of a cluster: GPUs × time from tiles, and below it the queue and the arrivals on the same axis.
// Axes, lines and areas are uPlot's; the raster is one image, put together from tiles of cells in each frame.
"use strict";
(() => {
  const html = (name, props = {}, ...inside) => {
    const made = Object.assign(document.createElement(name), props);
    made.append(...inside);
    return made;
  };
  const GUTTER = 96; // px for names of pools and nodes
  const RIGHT = 12;
  const KEPT = 96; // tiles of a run in memory
  const AT_ONCE = 4; // requests
  const TWICE = 300; // ms in which a second click makes it a double click
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 604800, 1209600, 2592000, 7776000];
  const HEAT = ["#10284f", "#3d4b6c", "#66696f", "#948d74", "#c4b567", "#f6e24a"];
  const COLORINGS = {
    user: "user", queue: "queue", reason: "why they waited", type: "GPU type", size: "job size", allocation: "allocation", utilization: "utilization", state: "state",
  };

  // --- words ---
  const pad = (n) => String(n).padStart(2, "0");
  // By the clock of the log, where its second 0 is known and time passes as it did; else days counted from 1.
  const clock = (s, precise = false, run = null) => {
    if (hasDates(run)) return dated(run.about.epoch + s, run.about.zone, precise);
    const t = Math.round(Math.abs(s));
    const [d, h, m, sec] = [Math.floor(t / 86400), Math.floor(t / 3600) % 24, Math.floor(t / 60) % 60, t % 60];
    const time = `${pad(h)}:${pad(m)}${precise || sec ? `:${pad(sec)}` : ""}`;
    return s < 0 ? `${d ? `${count(d, "day")} ` : ""}${time} before the log` : `day ${d + 1} ${time}`;
  };
  const hasDates = (run) => typeof run?.about.epoch === "number" && run.pace === 1;
  // Seconds from a midnight of the log's zone to second 0: ticks are at whole hours and days of the clock.
  function pastMidnight(run) {
    if (!hasDates(run)) return 0;
    const parts = new Intl.DateTimeFormat("en", { hour: "numeric", minute: "numeric", second: "numeric", hourCycle: "h23", timeZone: run.about.zone || "UTC" }).formatToParts(new Date(1000 * run.about.epoch));
    const [h, m, s] = ["hour", "minute", "second"].map((type) => Number(parts.find((p) => p.type === type).value));
    return 3600 * h + 60 * m + s + (run.about.epoch % 1);
  }
  const formats = new Map();
  function dated(unix, zone, precise) {
    const key = `${zone} ${precise}`;
    if (!formats.has(key)) {
      const parts = { weekday: "short", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZone: zone || "UTC" };
      formats.set(key, new Intl.DateTimeFormat("en-GB", precise ? { ...parts, second: "2-digit" } : parts));
    }
    return formats.get(key).format(new Date(1000 * unix)).replaceAll(",", "");
  }
  // One rule for durations: days from 2, hours from 2, minutes from 2, else seconds; three digits.
  const lasting = (s) => {
    const [, size, unit] = [[172800, 86400, "days"], [7200, 3600, "h"], [120, 60, "min"], [0, 1, "s"]].find(([least]) => s >= least) ?? [0, 1, "s"];
    return `${Number((s / size).toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 4 })} ${unit}`;
  };
  const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
  const count = (n, what) => `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;

  // --- colors ---
  const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  const mix = (a, b, share) => a.map((v, k) => v + (b[k] - v) * share);
  const word = (c) => (255 << 24) | (Math.round(c[2]) << 16) | (Math.round(c[1]) << 8) | Math.round(c[0]);
  const css = (c) => `rgb(${c.map(Math.round).join(" ")})`;
  const heat = (share) => {
    const place = Math.min(share, 0.9999) * (HEAT.length - 1);
    return mix(rgb(HEAT[Math.floor(place)]), rgb(HEAT[Math.floor(place) + 1]), place % 1);
  };
  function palette(element) {
    const style = getComputedStyle(element);
    const of = (name, otherwise) => rgb((style.getPropertyValue(name).trim() || otherwise));
    const series = ["#1746c7", "#db5600", "#008765", "#9b328b", "#6d4203", "#3c96e8", "#4f4062", "#910041"].map((c, k) => of(`--s${k}`, c));
    const [paper, ink, soft, rule] = [of("--paper", "#ffffff"), of("--ink", "#1a1d23"), of("--soft", "#565d68"), of("--rule", "#d9dce1")];
    return { series, paper, ink, soft, rule, idle: mix(paper, ink, 0.05) };
  }
  const categoryColor = (p, labels, k) => (k > p.series.length || ["all others", "did not wait"].includes(labels[k - 1]) ? mix(p.paper, p.ink, 0.5) : p.series[k - 1]);
  const STATES = { taken: 0, fragmented: 1, drained: 3, down: 7 }; // which color of the series

  // --- one run: its rows, and the tiles that came ---
  const sums = (differences) => {
    const edges = new Int32Array(differences.length + 1);
    differences.forEach((d, k) => { edges[k + 1] = edges[k] + d; });
    return edges;
  };
  const below = (edges, value) => { // the last edge that is not above
    let [low, high] = [0, edges.length - 1];
    while (low + 1 < high) {
      const middle = (low + high) >> 1;
      if (edges[middle] <= value) low = middle; else high = middle;
    }
    return low;
  };
  class Run {
    constructor(about, source) {
      this.about = about;
      this.source = source;
      this.pace = about.pace ?? 1; // seconds of the log in one of the run: at another load, time passes at another rate
      this.first = sums(about.first);
      this.levels = [{ name: about.finest, edges: null, rows: about.gpus }, ...about.levels.map((l) => ({ name: l.name, edges: sums(l.edges), rows: l.edges.length }))];
      this.tiles = new Map();
      this.waiting = new Set();
      this.cells = new Map();
    }
    row(level, gpu) { return level === 0 ? Math.min(this.about.gpus - 1, Math.max(0, Math.floor(gpu))) : below(this.levels[level].edges, gpu); }
    span(level, row) { const { edges } = this.levels[level]; return edges ? [edges[row], edges[row + 1]] : [row, row + 1]; }
    node(gpu) { return below(this.first, gpu); }
    type(level, row) { return this.about.type[this.node(this.span(level, row)[0])]; }
    holds(level, zoom) { return !this.about.held || this.about.held.some(([l, z]) => l === level && z === zoom); }
    // The finest zoom and level that this source has, from those that were wished for on.
    nearest(level, zoom) {
      if (!this.about.held || this.holds(level, zoom)) return [level, zoom];
      let best = null;
      for (const [l, z] of this.about.held) {
        const far = Math.abs(l - level) * 2 + (z > zoom ? 2 * (z - zoom) : zoom - z);
        if (!best || far < best[2]) best = [l, z, far];
      }
      return best ? best.slice(0, 2) : [level, zoom];
    }
    planes(color) {
      const has = (names) => names.filter((name) => this.about.planes.includes(name));
      if (color === "state") return has(["taken", "fragmented", "drained", "down"]);
      if (color === "utilization") return has(["used"]);
      return has(["user", "queue", "reason", "size"].includes(color) ? ["taken", color] : ["taken"]);
    }
    get(key, color) {
      const tile = this.tiles.get(key);
      return tile && this.planes(color).every((name) => name in tile) ? tile : null;
    }
    // Ask for a tile; `arrived` is called once it is there.
    want(key, color, arrived) {
      const missing = this.planes(color).filter((name) => !(name in (this.tiles.get(key) ?? {})));
      const ask = `${key} ${missing}`;
      if (!missing.length || this.waiting.has(ask) || this.waiting.size >= AT_ONCE) return;
      this.waiting.add(ask);
      this.source.tile(key, missing).then((planes) => {
        this.tiles.set(key, Object.assign(this.tiles.get(key) ?? {}, planes));
        for (const name of missing) this.tiles.get(key)[name] ??= null; // null: all 0
        for (const old of [...this.tiles.keys()].slice(0, Math.max(0, this.tiles.size - KEPT))) { this.tiles.delete(old); this.cells.delete(old); }
      }, () => {}).finally(() => { this.waiting.delete(ask); arrived(); });
    }
    // The colors of a tile's cells, made once.
    colored(key, color, paint) {
      const known = this.cells.get(key);
      if (known && known.by === paint) return known.cells;
      const tile = this.tiles.get(key);
      const [level, , , block] = key.split("/").map(Number);
      const cells = paint(this, tile, level, block * this.about.rows);
      this.cells.set(key, { by: paint, cells });
      return cells;
    }
  }

  // --- what a cell is painted ---
  const rowsOf = (run, level, from) => Math.min(run.about.rows, run.levels[level].rows - from);
  const labelsOf = (run, color) => (color === "type" ? run.about.types : run.about.labels[color]);
  function categories(p, color, first) {
    const shared = labelsOf(first, color);
    return (run, tile, level, from) => {
      const own = labelsOf(run, color);
      const colorOf = (k) => { // a name has the color that it has in the first run
        const at = shared.indexOf(own[k - 1]);
        return at < 0 ? mix(p.paper, p.ink, 0.5) : categoryColor(p, shared, at + 1);
      };
      const size = rowsOf(run, level, from) * run.about.bins;
      const table = new Int32Array(256 * 17);
      for (let k = 1; k <= 16; k++)
        for (let s = 0; s < 256; s++) table[k * 256 + s] = word(mix(p.idle, colorOf(k), s ? 0.3 + (0.7 * s) / 255 : 0));
      const cells = new Int32Array(size).fill(word(p.idle));
      const { taken } = tile;
      if (!taken) return cells;
      for (let r = 0, at = 0; at < size; r++) {
        const type = color === "type" ? (run.type(level, from + r) + 1) * 256 : 0;
        for (let b = 0; b < run.about.bins; b++, at++) if (taken[at]) cells[at] = table[(type || tile[color][at] * 256) + taken[at]];
      }
      return cells;
    };
  }
  function amounts(p, plane) {
    const table = Int32Array.from({ length: 256 }, (_, s) => word(s ? heat(s / 255) : p.idle));
    return (run, tile, level, from) => {
      const cells = new Int32Array(rowsOf(run, level, from) * run.about.bins).fill(word(p.idle));
      const values = tile[plane];
      if (values) for (let at = 0; at < cells.length; at++) if (values[at]) cells[at] = table[values[at]];
      return cells;
    };
  }
  // Shares of a cell's time in each state; what is free of a drained or fragmented node is that.
  function shares(tile, at) {
    const of = (name) => (tile[name] ? tile[name][at] / 255 : 0);
    const [taken, down] = [of("taken"), of("down")];
    const free = Math.max(0, 1 - taken - down);
    const drained = free * Math.min(1, of("drained"));
    const fragmented = (free - drained) * of("fragmented");
    return { taken, fragmented, drained, down, idle: Math.max(0, free - drained - fragmented) };
  }
  function states(p) {
    return (run, tile, level, from) => {
      const cells = new Int32Array(rowsOf(run, level, from) * run.about.bins);
      for (let at = 0; at < cells.length; at++) {
        const s = shares(tile, at);
        const c = [0, 1, 2].map((k) => p.idle[k] * s.idle + p.series[STATES.taken][k] * s.taken + p.series[STATES.fragmented][k] * s.fragmented
          + p.series[STATES.drained][k] * s.drained + p.series[STATES.down][k] * s.down);
        cells[at] = word(c.map((v) => Math.min(255, v)));
      }
      return cells;
    };
  }
  const painter = (p, color, first) => (color === "allocation" ? amounts(p, "taken") : color === "utilization" ? amounts(p, "used") : color === "state" ? states(p) : categories(p, color, first));

  // The most jobs that wait at once.
  const tops = new WeakMap();
  function queueTop(panels) {
    if (!tops.has(panels)) tops.set(panels, Object.values(panels.waiting).reduce((sum, values) => values.map((v, k) => v + (sum[k] ?? 0)), []).reduce((most, v) => Math.max(most, v), 0));
    return tops.get(panels);
  }

  // --- the figure ---
  class Timeline {
    constructor(element, abouts, sources, { height = 320, stories = false } = {}) {
      this.element = element;
      this.stories = stories; // whether jobs can be opened: event `timeline-job`
      this.height = height;
      this.charts = [];
      this.window = null;
      this.color = null;
      this.compared = "both";
      this.divider = 0.5; // where the run before ends and the run after begins, as a share of the width
      this.frames = 0;
      this.#build();
      this.set(abouts, sources);
      const again = () => { this.#recolor(); };
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
      new MutationObserver(again).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
      let wide = 0;
      new ResizeObserver(() => { if (Math.abs(this.plots.clientWidth - wide) > 1) { wide = this.plots.clientWidth; this.#layout(); } }).observe(this.plots);
    }
    // Show other runs; the view and the window stay where they can.
    set(abouts, sources) {
      const before = this.runs?.[0];
      this.runs = abouts.map((about, k) => new Run(about, sources[k]));
      this.whole = Math.max(...this.runs.map((r) => r.about.span));
      const arriving = Math.min(this.whole, 1.1 * Math.max(...this.runs.map((r) => r.about.arriving))); // later the queue only empties
      const same = before && before.about.gpus === this.runs[0].about.gpus && this.view;
      const view = same ? this.view : { t: [0, arriving], g: [0, 1] };
      this.view = { t: [Math.min(view.t[0], this.whole * 0.99), Math.min(view.t[1], this.whole)], g: view.g };
      if (this.view.t[1] - this.view.t[0] < 1) this.view = { t: [0, arriving], g: [0, 1] };
      if (same && view.t[0] <= 0 && view.t[1] >= before.about.span) this.view.t = [0, this.whole];
      this.#choices();
      this.both.hidden = this.runs.length < 2;
      this.cursor = null;
      this.#layout();
    }
    #choices() {
      const there = Object.keys(COLORINGS).filter((c) => this.#offers(c));
      if (!there.includes(this.color)) this.color = there.includes("user") && this.runs[0].about.labels.user.length > 1 ? "user" : "allocation";
      this.choice.replaceChildren(...there.map((c) => html("option", { value: c }, COLORINGS[c])));
      this.choice.value = this.color;
    }
    // Panels that came later than the first picture.
    panels(k, panels, meanings) {
      Object.assign(this.runs[k].about, { panels, meanings });
      this.#choices();
      this.#layout();
    }
    #offers(color) {
      const { planes, labels, types } = this.runs[0].about;
      if (color === "type") return types.length > 1;
      if (color === "queue" || color === "reason") return this.runs.every((r) => color in r.about.labels);
      if (color === "utilization") return this.runs.every((r) => r.about.planes.includes("used"));
      return color !== "state" || planes.some((name) => ["fragmented", "down", "drained"].includes(name));
    }

    // --- parts of the page ---
    #build() {
      const button = (text, label, act) => {
        const made = html("button", { type: "button" }, text);
        made.setAttribute("aria-label", label);
        made.title = label;
        made.addEventListener("click", act);
        return made;
      };
      this.choice = html("select");
      this.choice.setAttribute("aria-label", "Color by");
      this.choice.addEventListener("change", () => { this.color = this.choice.value; this.#recolor(); });
      this.both = html("select", { hidden: true }, html("option", { value: "both" }, "both runs"), html("option", { value: "swipe" }, "before | after: swipe"), html("option", { value: "difference" }, "difference of allocation"));
      this.both.setAttribute("aria-label", "Runs");
      this.both.addEventListener("change", () => { this.compared = this.both.value; this.#layout(); });
      this.toWindow = button("Select what is shown", "Use the time that is shown as the window of the other figures", () => this.select(...this.view.t.map((t) => t * this.runs[0].pace)));
      this.noWindow = button("Clear selection", "Use the whole time again", () => this.select());
      this.noWindow.hidden = true;
      const tools = html("div", { className: "timeline-tools" }, html("label", {}, "Color by ", this.choice), this.both,
        button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)), button("Whole", "Show the whole time and all rows", () => this.reset()),
        this.toWindow, this.noWindow);
      tools.setAttribute("role", "toolbar");
      tools.setAttribute("aria-label", "Timeline");
      this.plots = html("div", { className: "timeline-plots", tabIndex: 0 });
      this.plots.setAttribute("role", "application");
      this.plots.setAttribute("aria-roledescription", "timeline");
      this.plots.setAttribute("aria-label", "Cluster timeline: arrow keys move, plus and minus zoom, Shift with arrow keys moves a cursor that is read out, Space begins and ends a selection, Enter opens the job under the cursor, Home shows all");
      this.legend = html("ul", { className: "timeline-legend" });
      this.legend.setAttribute("aria-label", "Colors");
      this.readout = html("div", { className: "timeline-readout" });
      this.live = html("p", { className: "timeline-live" });
      this.live.setAttribute("role", "status");
      const help = html("p", { className: "timeline-help soft" }, "Drag to pan · Ctrl+scroll to zoom · Shift+drag to select. Works on the node names too.");
      this.swipe = html("input", { type: "range", className: "timeline-swipe", min: 0, max: 1, step: 0.005, value: this.divider, hidden: true });
      this.swipe.setAttribute("aria-label", "Where the run before ends and the run after begins");
      this.swipe.addEventListener("input", () => { this.divider = Number(this.swipe.value); this.draw(); });
      Object.assign(this.swipe.style, { marginLeft: `${GUTTER}px`, width: `calc(100% - ${GUTTER + RIGHT}px)` });
      this.element.replaceChildren(tools, this.legend, this.swipe, this.plots, this.live, help);
      this.#pointers();
      this.#keys();
    }
    #colors() {
      this.p = palette(this.element);
      this.paint = painter(this.p, this.color, this.runs[0]);
    }
    #recolor() {
      for (const run of this.runs) run.cells.clear();
      this.#layout();
    }
    #legend() {
      const { p, color } = this;
      const { about } = this.runs[0];
      const entry = (c, name) => {
        const box = html("span", { className: "timeline-swatch" });
        box.style.background = css(c);
        return html("li", {}, box, name);
      };
      let entries = [];
      if (this.#differs()) entries = [entry(p.series[1], `more in ${this.runs[0].about.label || "the first"}`), entry(p.series[0], `more in ${this.runs[1].about.label || "the second"}`)];
      else if (color === "allocation" || color === "utilization") entries = [0.02, 0.25, 0.5, 0.75, 1].map((s) => entry(heat(s), percent(s)));
      else if (color === "state") {
        const names = { taken: "allocated", fragmented: "idle but fragmented", drained: "drained", down: "down" };
        entries = [...Object.entries(names).filter(([name]) => about.planes.includes(name)).map(([name, said]) => entry(p.series[STATES[name]], said)), entry(p.idle, "idle")];
      } else {
        const labels = color === "type" ? about.types : about.labels[color];
        entries = labels.map((name, k) => entry(categoryColor(p, labels, k + 1), name.replaceAll("_", " ") || "(unknown)"));
        entries.push(html("li", { className: "soft" }, "Paler = partly idle."));
      }
      this.legend.replaceChildren(...entries);
    }
    #joins(how) { return this.runs.length > 1 && this.compared === how && this.runs[0].about.gpus === this.runs[1].about.gpus; }
    #differs() { return this.#joins("difference"); }
    #swipes() { return this.#joins("swipe"); }

    // --- charts ---
    #layout() {
      if (!this.plots.clientWidth) return;
      for (const { u } of this.charts) u.destroy();
      this.plots.replaceChildren();
      this.#colors();
      this.#legend();
      const differs = this.#differs();
      const swipes = this.#swipes();
      this.swipe.hidden = !swipes;
      const shown = differs ? [this.runs[0]] : [...this.runs].reverse(); // before, then after
      const tall = Math.round(this.height / (shown.length > 1 && !swipes ? 1.5 : 1));
      this.charts = [];
      if (swipes) {
        this.plots.append(html("p", { className: "timeline-run" }, shown.map((run) => run.about.label).join(" | ")));
        this.#raster(this.runs[0], tall, false);
      }
      shown.forEach((run) => {
        if (shown.length > 1) this.plots.append(html("p", { className: "timeline-run" }, run.about.label || `run ${this.runs.indexOf(run) + 1}`));
        if (!swipes) this.#raster(run, tall, differs);
        if (!differs) this.#queue(run);
      });
      this.#arrivals(this.runs);
      this.plots.append(this.readout);
      this.draw();
    }
    #axis(last, run) {
      const { p } = this;
      const past = pastMidnight(run);
      return {
        splits: (u, axis, low, high, step) => {
          const at = [];
          for (let t = Math.ceil((low + past) / step) * step - past; t <= high; t += step) at.push(t);
          return at;
        },
        stroke: css(p.soft), grid: { show: false }, ticks: { show: last, stroke: css(p.soft), size: 4 }, size: last ? 30 : 4, incrs: STEPS, space: hasDates(run) ? 120 : 90,
        values: last ? (u, splits) => splits.map((s) => clock(s, false, run)) : (u, splits) => splits.map(() => ""), font: "12px system-ui, sans-serif",
      };
    }
    #chart(options, data, about) {
      const u = new uPlot({
        width: this.plots.clientWidth, padding: [4, RIGHT, 0, 0], legend: { show: false }, cursor: { x: true, y: false, points: { show: false }, drag: { x: false, y: false, setScale: false }, sync: { key: `timeline-${this.#key()}` } },
        ...options,
        hooks: { ...options.hooks, draw: [(c) => this.#selection(c, about.run), ...(options.hooks?.draw ?? [])] },
      }, data, this.plots);
      this.charts.push({ u, ...about });
      return u;
    }
    #key() { this.number ??= (Timeline.made = (Timeline.made ?? 0) + 1); return this.number; }
    #scaleX() { return { time: false, auto: false, range: (u, low, high) => [low, high] }; }
    #raster(run, tall, differs) {
      const names = () => {
        const [low, high] = this.#gpus(run);
        const places = [];
        const px = (high - low) / tall;
        let at = 0;
        const labelled = run.first.length - 1 < 400 && px * 14 < (high - low) / Math.max(1, run.node(high - 1) - run.node(low) + 1);
        if (labelled || px * 14 * 40 > high - low) for (let n = run.node(low); n <= Math.min(run.node(high - 0.001), run.about.nodes.length - 1); n++) places.push([run.first[n], run.first[n + 1], run.about.nodes[n]]);
        if (places.length > tall / 13 || !places.length) {
          places.length = 0;
          for (const [name, nodes] of run.about.pools) { places.push([run.first[at], run.first[at + nodes], name]); at += nodes; }
        }
        return places.map(([a, b, name]) => [(Math.max(a, low) + Math.min(b, high)) / 2, name, (Math.min(b, high) - Math.max(a, low)) / px]).filter(([, , size]) => size >= 11);
      };
      this.#chart({
        height: tall,
        scales: { x: this.#scaleX(), y: { auto: false, dir: -1, range: (u, low, high) => [low, high] } },
        axes: [this.#axis(false, run), { stroke: css(this.p.soft), grid: { show: false }, ticks: { show: false }, size: GUTTER, gap: 6, font: "12px system-ui, sans-serif",
          splits: () => names().map(([at]) => at), values: () => names().map(([, name]) => (name.length > 13 ? `${name.slice(0, 12)}…` : name)) }],
        series: [{}, { scale: "y", show: false }],
        hooks: { drawClear: [(u) => this.#picture(u, run, differs)], draw: [(u) => this.#borders(u, run)] },
      }, [[0, this.whole], [null, null]], { run, kind: "raster", differs });
    }
    #queue(run) {
      const { panels, meanings } = run.about;
      const reasons = Object.keys(panels.waiting);
      if (!reasons.length) return;
      const width = run.about.span / panels.bins;
      const at = Float64Array.from({ length: panels.bins }, (_, k) => k * width);
      const stack = [];
      for (const reason of reasons) stack.push(panels.waiting[reason].map((v, k) => v + (stack.length ? stack[stack.length - 1][k] : 0)));
      // A color is a reason, in both runs and in the rows above.
      const every = [...new Set([...(this.runs[0].about.labels.reason ?? []).slice(0, -1), ...this.runs.flatMap((r) => Object.keys(r.about.panels.waiting))])];
      const color = (k) => this.p.series[every.indexOf(reasons[k])] ?? this.p.soft;
      const longest = Math.max(1, ...this.runs.map((r) => queueTop(r.about.panels))); // one axis for all runs
      const series = reasons.map((reason, k) => ({ label: reason, scale: "y", stroke: css(color(k)), fill: css(color(k)), width: 0, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }));
      const said = html("p", { className: "timeline-caption" }, "Jobs waiting: ", ...reasons.map((reason, k) => {
        const box = html("span", { className: "timeline-swatch" });
        box.style.background = css(color(k));
        return html("span", { className: "timeline-reason", title: meanings?.[reason] ?? "" }, box, reason === "all" ? "all reasons" : reason.replaceAll("_", " "));
      }));
      this.plots.append(said);
      this.#chart({
        height: 90, scales: { x: this.#scaleX(), y: { range: () => [0, longest * 1.05] } },
        axes: [this.#axis(false, run), this.#numbers()], series: [{}, ...series.reverse()],
      }, [at, ...stack.reverse()], { run, kind: "queue", reasons });
    }
    #numbers() {
      return { stroke: css(this.p.soft), grid: { stroke: css(this.p.rule), width: 1 }, ticks: { show: false }, size: GUTTER, space: 28, font: "12px system-ui, sans-serif", values: (u, splits) => splits.map((v) => v.toLocaleString("en")) };
    }
    #arrivals(shown) {
      this.plots.append(html("p", { className: "timeline-caption" }, "Jobs submitted per hour"));
      const run = shown[0];
      const { panels, span } = run.about;
      const width = span / panels.bins;
      const at = Float64Array.from({ length: panels.bins }, (_, k) => k * width);
      const rate = panels.arrivals.map((n) => (n / width) * 3600);
      this.#chart({
        height: 96, scales: { x: this.#scaleX(), y: { range: (u, low, high) => [0, Math.max(1, high) * 1.05] } },
        axes: [this.#axis(true, run), this.#numbers()],
        series: [{}, { stroke: css(this.p.series[0]), width: 1, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }],
      }, [at, rate], { run, kind: "arrivals" });
    }
    #selection(u, run) {
      const { ctx } = u;
      const { left, top, width, height } = u.bbox;
      const spans = [];
      if (this.window) spans.push(this.window);
      if (this.brush) spans.push([Math.min(...this.brush), Math.max(...this.brush)]);
      for (const [a, b] of spans) {
        const [x, y] = [a, b].map((t) => u.valToPos(t / run.pace, "x", true));
        ctx.save();
        ctx.beginPath();
        ctx.rect(left, top, width, height);
        ctx.clip();
        ctx.fillStyle = css(this.p.ink);
        ctx.globalAlpha = 0.22;
        ctx.fillRect(left, top, x - left, height);
        ctx.fillRect(y, top, left + width - y, height);
        ctx.globalAlpha = 1;
        ctx.strokeStyle = css(this.p.ink);
        ctx.lineWidth = 2;
        ctx.strokeRect(x, top, y - x, height);
        ctx.restore();
      }
      if (this.cursor) {
        ctx.save();
        ctx.strokeStyle = css(this.p.ink);
        ctx.setLineDash([4, 3]);
        const x = u.valToPos(this.cursor.t, "x", true);
        ctx.beginPath();
        ctx.moveTo(x, top);
        ctx.lineTo(x, top + height);
        ctx.stroke();
        ctx.restore();
      }
    }
    #borders(u, run) {
      const { ctx } = u;
      const { left, top, width, height } = u.bbox;
      ctx.save();
      ctx.strokeStyle = css(this.p.soft);
      ctx.lineWidth = 1;
      let at = 0;
      for (const [, nodes] of run.about.pools) {
        at += nodes;
        const y = Math.round(u.valToPos(run.first[at], "y", true)) + 0.5;
        if (y <= top || y >= top + height) continue;
        ctx.beginPath();
        ctx.moveTo(left - 6, y);
        ctx.lineTo(left + width, y);
        ctx.stroke();
      }
      ctx.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
      ctx.restore();
    }

    // --- the raster ---
    #gpus(run) { return this.view.g.map((share) => share * run.about.gpus); }
    #level(run, tall) {
      const [low, high] = this.#gpus(run);
      const share = (high - low) / run.about.gpus;
      const level = run.levels.findIndex((l) => l.rows * share <= tall * 1.15);
      return level < 0 ? run.levels.length - 1 : level;
    }
    #zoomLevel(run, wide) {
      const seconds = (this.view.t[1] - this.view.t[0]) / wide; // of a pixel
      return Math.min(run.about.deepest, Math.max(0, Math.ceil(Math.log2(run.about.span / run.about.bins / (2 * seconds)))));
    }
    #picture(u, run, differs) {
      const [left, top, wide, tall] = [u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height].map(Math.round);
      if (wide < 1 || tall < 1) return;
      if (!this.image || this.image.width !== wide || this.image.height !== tall) this.image = u.ctx.createImageData(wide, tall);
      const pixels = new Int32Array(this.image.data.buffer);
      pixels.fill(word(this.p.idle));
      const at = Math.round(this.divider * wide);
      if (differs) this.#difference(pixels, wide, tall);
      else if (this.#swipes()) {
        this.#compose(this.runs[1], wide, tall, pixels, 0, 0, at);
        this.#compose(this.runs[0], wide, tall, pixels, 0, at);
        for (let y = 0; y < tall; y++) for (const x of [at - 1, at]) if (x >= 0 && x < wide) pixels[y * wide + x] = word(this.p.ink);
      } else this.#compose(run, wide, tall, pixels);
      u.ctx.putImageData(this.image, left, top);
    }
    // Find the cell of each pixel from one column to another: columns once, rows once per line. With a `sign`, sum
    // allocations instead of drawing colors.
    #compose(run, wide, tall, pixels, sign = 0, begin = 0, end = wide) {
      const { bins, rows, span } = run.about;
      const [level, zoom] = run.nearest(this.#level(run, tall), this.#zoomLevel(run, wide / (devicePixelRatio || 1)));
      const binAt = new Int32Array(wide);
      const all = bins * 2 ** zoom;
      for (let x = 0; x < wide; x++) {
        const t = this.view.t[0] + ((x + 0.5) / wide) * (this.view.t[1] - this.view.t[0]);
        binAt[x] = t < 0 || t >= span ? -1 : Math.min(all - 1, Math.floor((t / span) * all));
      }
      const parts = []; // neighbors of one column
      for (let x = begin; x < end; x++) {
        const column = binAt[x] < 0 ? -1 : Math.floor(binAt[x] / bins);
        if (!parts.length || parts[parts.length - 1].column !== column) parts.push({ column, from: x, to: x + 1 }); else parts[parts.length - 1].to = x + 1;
      }
      const [low, high] = this.#gpus(run);
      const found = new Map();
      const wanted = new Set();
      const color = sign ? "allocation" : this.color;
      const find = (lev, column, block) => {
        const name = `${lev}/${column}/${block}`;
        if (!found.has(name)) {
          let best = null;
          for (let z = zoom; z >= 0 && !best; z--) {
            const key = `${lev}/${z}/${column >> (zoom - z)}/${block}`;
            if (run.get(key, color)) best = { cells: sign ? run.tiles.get(key).taken : run.colored(key, color, this.paint), shift: zoom - z, base: (column >> (zoom - z)) * bins };
          }
          found.set(name, best);
        }
        return found.get(name);
      };
      for (let y = 0; y < tall; y++) {
        const gpu = low + ((y + 0.5) / tall) * (high - low);
        for (const { column, from, to } of parts) {
          if (column < 0) continue;
          let [lev, row] = [level, run.row(level, gpu)];
          const block = Math.floor(row / rows);
          wanted.add(`${level}/${zoom}/${column}/${block}`);
          let tile = find(level, column, block);
          while (!tile && lev + 1 < run.levels.length) { // coarser rows until finer ones are there
            lev++;
            row = run.row(lev, gpu);
            tile = find(lev, column, Math.floor(row / rows));
          }
          if (!tile || !tile.cells) continue;
          const { cells, shift, base } = tile;
          const line = (row % rows) * bins - base;
          if (sign) for (let x = from, at = y * wide + from; x < to; x++, at++) pixels[at] += sign * cells[line + (binAt[x] >> shift)];
          else for (let x = from, at = y * wide + from; x < to; x++, at++) pixels[at] = cells[line + (binAt[x] >> shift)];
        }
      }
      for (const key of wanted) run.want(key, color, () => this.draw());
      this.missing = [...wanted].filter((key) => !run.get(key, color)).length;
    }
    #difference(pixels, wide, tall) {
      const raw = new Int16Array(wide * tall);
      this.#compose(this.runs[0], wide, tall, raw, 1);
      this.#compose(this.runs[1], wide, tall, raw, -1);
      const { p } = this;
      const table = Int32Array.from({ length: 511 }, (_, k) => word(k === 255 ? p.idle : mix(p.idle, k > 255 ? p.series[1] : p.series[0], 0.15 + (0.85 * Math.abs(k - 255)) / 255)));
      for (let at = 0; at < raw.length; at++) pixels[at] = table[raw[at] + 255];
    }

    // --- moving ---
    draw() {
      if (this.pending) return;
      this.pending = requestAnimationFrame(() => {
        this.pending = 0;
        this.frames++;
        for (const { u, kind, run } of this.charts)
          u.batch(() => {
            u.setScale("x", { min: this.view.t[0], max: this.view.t[1] });
            if (kind === "raster") { const [min, max] = this.#gpus(run); u.setScale("y", { min, max }); }
            u.redraw(false, true);
          });
      });
    }
    look(t, g = this.view.g) {
      const shortest = Math.min(this.whole, 20);
      const inside = ([a, b], low, high, least) => {
        const size = Math.min(high - low, Math.max(least, b - a));
        const from = Math.min(high - size, Math.max(low, (a + b - size) / 2));
        return [from, from + size];
      };
      this.view = { t: inside(t, 0, this.whole, shortest), g: inside(g, 0, 1, Math.min(1, 4 / this.runs[0].about.gpus)) };
      this.draw();
    }
    zoom(by, at = 0.5) {
      const [a, b] = this.view.t;
      const still = a + (b - a) * at;
      this.look([still - (still - a) * by, still + (b - still) * by]);
    }
    zoomRows(by, at = 0.5) {
      const [a, b] = this.view.g;
      const still = a + (b - a) * at;
      this.look(this.view.t, [still - (still - a) * by, still + (b - still) * by]);
    }
    move(t, g = 0) {
      const [dt, dg] = [t * (this.view.t[1] - this.view.t[0]), g * (this.view.g[1] - this.view.g[0])];
      this.look(this.view.t.map((v) => v + dt), this.view.g.map((v) => v + dg));
    }
    reset() { this.look([0, this.whole], [0, 1]); }
    // The window of the other figures: [t0, t1] in seconds of the log, or nothing.
    select(from, to) {
      this.brush = null; // here alone: an answer that comes while one is drawn does not end it
      this.show(from === undefined ? null : [Math.max(0, from), Math.min(this.#logged(), to)]);
      this.say(this.window ? `Selected: ${this.#at(this.window[0])} to ${this.#at(this.window[1])}, ${lasting(this.window[1] - this.window[0])}.` : "No selection: the whole time.");
      this.element.dispatchEvent(new CustomEvent("timeline-window", { bubbles: true, detail: this.window ? { t0: this.window[0], t1: this.window[1] } : null }));
    }
    // Draw a window that was selected elsewhere, such as in the address of a page.
    show(window) {
      this.window = window && [window[0], Math.min(window[1], this.#logged())];
      this.noWindow.hidden = !window;
      this.draw();
    }
    // A time of the log.
    #at(t) { const { about } = this.runs[0]; return clock(t, false, { about, pace: 1 }); }
    #logged() { return Math.max(...this.runs.map((r) => r.about.span * r.pace)); }
    say(text) { this.live.textContent = text; }

    // --- what is under a point ---
    #place(event) {
      for (const { u, kind, run } of this.charts) {
        const box = u.over.getBoundingClientRect();
        if (event.clientY < box.top || event.clientY > box.bottom) continue;
        const x = (event.clientX - box.left) / box.width;
        const y = (event.clientY - box.top) / box.height;
        const t = this.view.t[0] + x * (this.view.t[1] - this.view.t[0]);
        const g = this.view.g[0] + y * (this.view.g[1] - this.view.g[0]);
        const under = kind === "raster" && this.#swipes() && x < this.divider ? this.runs[1] : run;
        return { kind, run: under, x, y, t, gpu: g * run.about.gpus, box };
      }
      return null;
    }
    async #describe(at) {
      const { run, t, gpu, kind } = at;
      const { about } = run;
      if (t < 0 || t > about.span) return null;
      if (kind !== "raster") {
        const bin = Math.min(about.panels.bins - 1, Math.floor((t / about.span) * about.panels.bins));
        const width = about.span / about.panels.bins;
        const lines = [[clock(t, false, run)], [`${count(about.panels.arrivals[bin], "job")} submitted in ${lasting(width)}`]];
        for (const [reason, values] of Object.entries(about.panels.waiting)) if (values[bin] >= 0.05) lines.push([`${values[bin].toLocaleString("en", { maximumFractionDigits: 1 })} wait: ${reason.replaceAll("_", " ")}`]);
        return lines;
      }
      const tall = at.box.height;
      const [level, zoom] = run.nearest(this.#level(run, tall), this.#zoomLevel(run, at.box.width));
      const row = run.row(level, gpu);
      const [first, end] = run.span(level, row);
      const [a, b] = [run.node(first), run.node(end - 1)];
      const name = a === b ? about.nodes[a] : `${about.nodes[a]} to ${about.nodes[b]}`;
      const part = level === 0 ? `, GPU ${first - run.first[a]}` : `, ${count(end - first, "GPU")}`;
      const lines = [[`${name}${part}${about.types[about.type[a]] ? `, ${about.types[about.type[a]]}` : ""}`], [clock(t, true, run)]];
      const bins = about.bins * 2 ** zoom;
      const bin = Math.min(bins - 1, Math.floor((t / about.span) * bins));
      const key = `${level}/${zoom}/${Math.floor(bin / about.bins)}/${Math.floor(row / about.rows)}`;
      const tile = run.tiles.get(key);
      if (tile && "taken" in tile) {
        const cell = (row % about.rows) * about.bins + (bin % about.bins);
        const labels = about.labels[this.color];
        const most = labels && tile[this.color] ? labels[tile[this.color][cell] - 1] : null;
        const taken = tile.taken ? tile.taken[cell] : 0;
        lines.push([taken ? `${percent(taken / 255)} busy${most ? `, most of it: ${most.replaceAll("_", " ")}` : ""}` : "idle"]);
        if (this.color === "state") for (const [state, share] of Object.entries(shares(tile, cell))) if (share > 0.005 && state !== "taken") lines.push([`${percent(share)} ${state}`]);
      }
      const found = await run.source.at(first, end, t).catch(() => null);
      if (found) {
        // A job on several GPUs of the row is one job.
        const jobs = [...new Map(found.jobs.map((job) => [[job.job, job.name, job.user, job.begin, job.end].join(), job])).values()];
        for (const job of jobs.slice(0, 4)) {
          const known = job.name || job.job >= 0;
          lines.push([known ? `job ${job.name || job.job}` : "a job of the warm-up", `${job.user ? `user ${job.user}, ` : ""}${job.gpus.toLocaleString("en")} GPU${job.gpus === 1 ? "" : "s"}, ${clock(job.begin, true, run)} to ${clock(job.end, true, run)}, waited ${lasting(Math.max(0, job.begin - job.submitted))}`, known ? job : null]);
        }
        if (jobs.length > 4 || found.count > found.jobs.length) lines.push(["and more: zoom in to see them"]);
      }
      return lines;
    }
    // Show what is under a point; `pinned`: it stays, and its jobs can be opened where a page tells their stories.
    async tell(at, { aloud = false, pinned = false, open = false } = {}) {
      const asked = (this.asked = (this.asked ?? 0) + 1);
      this.pinned = pinned && Boolean(at); // a pointer that moved before, or moves on meanwhile, does not take it away
      if (this.pinned) clearTimeout(this.soon);
      const lines = at ? await this.#describe(at) : null;
      if (asked !== this.asked) return;
      this.pinned = pinned && Boolean(lines);
      this.readout.hidden = !lines;
      this.readout.classList.toggle("pinned", this.pinned);
      if (!lines) return;
      const jobs = lines.map((line) => line[2]).filter(Boolean);
      if (open && this.stories && jobs.length === 1 && lines.filter((line) => line[0].startsWith("and ")).length === 0) { this.openJob(jobs[0]); return; }
      this.readout.replaceChildren(...lines.map(([bold, rest, job]) => html("div", {}, job && this.stories && pinned ? this.#opener(bold, job) : html("b", {}, bold), ...(rest ? [` ${rest}`] : []))));
      const frame = this.plots.getBoundingClientRect();
      const x = at.box.left - frame.left + at.x * at.box.width;
      this.readout.style.top = `${at.box.top - frame.top + Math.min(at.y * at.box.height + 14, at.box.height - 20)}px`;
      this.readout.style.left = x > frame.width / 2 ? "" : `${x + 14}px`;
      this.readout.style.right = x > frame.width / 2 ? `${frame.width - x + 14}px` : "";
      if (aloud) this.say(lines.map((l) => l.slice(0, 2).filter(Boolean).join(" ")).join("; "));
      if (open) this.readout.querySelector("button")?.focus();
    }
    #opener(text, job) {
      const button = html("button", { type: "button", className: "timeline-job" }, text);
      button.title = "Why it waited, and where it ran";
      button.addEventListener("click", () => this.openJob(job));
      return button;
    }
    openJob(job) {
      this.readout.hidden = true;
      this.pinned = false;
      this.element.dispatchEvent(new CustomEvent("timeline-job", { bubbles: true, detail: job }));
    }

    // --- hands ---
    #pointers() {
      const touching = new Map();
      let [held, spread] = [null, null];
      const { plots } = this;
      plots.addEventListener("pointerdown", (event) => {
        if (event.button || event.target.closest("button, select, .timeline-readout")) return;
        const at = this.#place(event);
        clearTimeout(this.opening);
        if (!at) return;
        touching.set(event.pointerId, event);
        plots.setPointerCapture(event.pointerId);
        if (touching.size === 2) {
          const [p, q] = [...touching.values()];
          spread = { size: Math.hypot(p.clientX - q.clientX, p.clientY - q.clientY), view: this.view, at: (at.x + this.#place(p).x) / 2 };
          held = null;
          return;
        }
        const brushes = event.shiftKey || (at.kind !== "raster" && event.pointerType !== "touch");
        held = { at, x: event.clientX, y: event.clientY, view: this.view, brushes, moved: false };
      });
      plots.addEventListener("pointermove", (event) => {
        if (touching.has(event.pointerId)) touching.set(event.pointerId, event);
        if (spread && touching.size === 2) {
          const [p, q] = [...touching.values()];
          const by = spread.size / Math.max(10, Math.hypot(p.clientX - q.clientX, p.clientY - q.clientY));
          const [a, b] = spread.view.t;
          const still = a + (b - a) * spread.at;
          this.look([still - (still - a) * by, still + (b - still) * by]);
          return;
        }
        if (!held) {
          clearTimeout(this.soon);
          if (this.pinned) return;
          const at = this.#place(event);
          this.soon = setTimeout(() => this.tell(at), 60);
          return;
        }
        const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
        if (Math.abs(dx) + Math.abs(dy) > 4) held.moved = true;
        if (!held.moved) return;
        this.readout.hidden = true;
        this.pinned = false;
        if (held.brushes) {
          const [a, b] = this.view.t;
          this.brush = [held.at.t, Math.min(b, Math.max(a, a + ((event.clientX - held.at.box.left) / held.at.box.width) * (b - a)))].map((t) => t * held.at.run.pace);
          this.draw();
          return;
        }
        const { t, g } = held.view;
        const [dt, dg] = [(dx / held.at.box.width) * (t[1] - t[0]), held.at.kind === "raster" ? (dy / held.at.box.height) * (g[1] - g[0]) : 0];
        this.look(t.map((v) => v - dt), event.pointerType === "touch" ? g : g.map((v) => v - dg));
      });
      const release = (event) => {
        touching.delete(event.pointerId);
        if (touching.size < 2) spread = null;
        if (!held) return;
        const { brushes, moved, at } = held;
        held = null;
        if (brushes && moved && this.brush) this.select(Math.min(...this.brush), Math.max(...this.brush));
        else if (!moved && event.type === "pointerup") {
          const open = this.stories && event.pointerType === "mouse"; // a finger has read nothing yet: it opens a job by its name
          this.opening = setTimeout(() => this.tell(at, { aloud: true, pinned: true, open }), open ? TWICE : 0);
        }
      };
      plots.addEventListener("pointerup", release);
      plots.addEventListener("pointercancel", release);
      plots.addEventListener("pointerleave", () => { clearTimeout(this.soon); if (!this.pinned) this.tell(null); });
      plots.addEventListener("dblclick", (event) => { clearTimeout(this.opening); const at = this.#place(event); if (at) this.zoom(event.shiftKey ? 2 : 0.5, at.x); });
      plots.addEventListener("wheel", (event) => {
        const at = this.#place(event);
        if (!at || !(event.ctrlKey || event.metaKey || event.shiftKey || document.activeElement === plots)) return; // else the page scrolls
        event.preventDefault();
        const by = Math.exp(Math.max(-1, Math.min(1, (event.deltaY || event.deltaX) / 240)));
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && !event.ctrlKey) this.move(event.deltaX / at.box.width);
        else if (event.shiftKey || at.x < 0) this.zoomRows(by, Math.min(1, Math.max(0, at.y)));
        else this.zoom(by, at.x);
      }, { passive: false });
    }
    #keys() {
      const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      this.plots.addEventListener("keydown", (event) => {
        const key = event.key;
        if (event.ctrlKey || event.metaKey || (event.target !== this.plots && key !== "Escape")) return;
        if (key in arrows && event.shiftKey) this.#step(...arrows[key]);
        else if (key in arrows) this.move(arrows[key][0] / 8, arrows[key][1] / 8);
        else if (key === "+" || key === "=") (event.altKey ? this.zoomRows(0.5) : this.zoom(0.5));
        else if (key === "-" || key === "_") (event.altKey ? this.zoomRows(2) : this.zoom(2));
        else if (key === "Home") this.reset();
        else if (key === "PageUp") this.zoomRows(0.5);
        else if (key === "PageDown") this.zoomRows(2);
        else if (key === " ") this.#mark();
        else if (key === "Enter") this.#step(0, 0, { open: true });
        else if (key === "Escape") this.#escape();
        else return;
        event.preventDefault();
      });
    }
    // First what was begun or is read out, then the selection.
    #escape() {
      const begun = this.brush || (this.started ?? null) !== null || this.cursor || !this.readout.hidden;
      Object.assign(this, { brush: null, started: null, cursor: null, pinned: false });
      this.readout.hidden = true;
      this.plots.focus();
      if (!begun && this.window) this.select(); else this.draw();
    }
    // A cursor for those without a pointer: it is read out.
    #step(dx, dy, { open = false } = {}) {
      const { t, g } = this.view;
      const now = this.cursor ?? { t: (t[0] + t[1]) / 2, g: (g[0] + g[1]) / 2 };
      const run = this.runs[0];
      const chart = this.charts.find((c) => c.kind === "raster");
      const tall = chart.u.over.clientHeight;
      const level = this.#level(run, tall);
      const [first, end] = run.span(level, run.row(level, Math.min(now.g, 0.999999) * run.about.gpus));
      const rowStep = Math.max((end - first) / run.about.gpus, (g[1] - g[0]) / 40);
      this.cursor = { t: Math.min(this.whole, Math.max(0, now.t + (dx * (t[1] - t[0])) / 50)), g: Math.min(0.999999, Math.max(0, now.g + dy * rowStep)) };
      if (this.started !== undefined && this.started !== null) this.brush = [this.started, this.cursor.t * run.pace];
      if (this.cursor.t < t[0] || this.cursor.t > t[1]) this.move(dx / 4); else this.draw();
      const box = chart.u.over.getBoundingClientRect();
      const at = { kind: "raster", run, t: this.cursor.t, gpu: this.cursor.g * run.about.gpus, x: (this.cursor.t - this.view.t[0]) / (this.view.t[1] - this.view.t[0]), y: (this.cursor.g - this.view.g[0]) / (this.view.g[1] - this.view.g[0]), box };
      this.tell(at, { aloud: true, pinned: true, open });
    }
    #mark() {
      if (!this.cursor) this.#step(0, 0);
      if (this.started === undefined || this.started === null) {
        this.started = this.cursor.t * this.runs[0].pace;
        this.say(`Selection begins at ${this.#at(this.started)}: move with Shift and the arrow keys, Space ends it.`);
      } else {
        const ends = [this.started, this.cursor.t * this.runs[0].pace];
        Object.assign(this, { started: null, cursor: null, pinned: false });
        this.readout.hidden = true;
        this.select(Math.min(...ends), Math.max(...ends));
      }
    }
  }

  // --- tiles that came with the page ---
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  async function inflate(packed) {
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }
  function embedded(about, tiles) {
    const { jobs } = about;
    const first = jobs && sums(jobs.runs);
    return {
      async tile(key, planes) {
        const found = await Promise.all(planes.map((name) => (tiles[`${key}/${name}`] ? inflate(bytes(tiles[`${key}/${name}`])) : null)));
        return Object.fromEntries(planes.map((name, k) => [name, found[k]]));
      },
      async at(from, to, time) {
        if (!jobs) return null;
        const found = [];
        for (let k = first[from]; k < first[to]; k++)
          if (jobs.begin[k] <= time && time < jobs.end[k]) found.push({ name: jobs.names[jobs.job[k]], user: jobs.users[jobs.user[jobs.job[k]]], gpus: jobs.gpus[jobs.job[k]], submitted: jobs.submitted[jobs.job[k]], begin: jobs.begin[k], end: jobs.end[k] });
        return { count: found.length, jobs: found };
      },
    };
  }
  function live(root) {
    for (const element of root.querySelectorAll(".cluster-timeline")) {
      const source = element.querySelector(':scope > script[type="application/json"]');
      if (!source || element.dataset.live) continue;
      element.dataset.live = "1";
      const runs = JSON.parse(source.textContent);
      const place = element.querySelector(".timeline");
      element.timeline = new Timeline(place, runs.map((r) => r.about), runs.map((r) => embedded(r.about, r.tiles)));
    }
  }
  window.fleetlab = Object.assign(window.fleetlab ?? {}, { Timeline, inflate, liveTimelines: live });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => live(document)); else live(document);
})();
