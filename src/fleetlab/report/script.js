// What a page does where scripts run: read out, switch curves off, zoom, sort, light and dark. All of it can be read without.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const html = (name, props = {}, ...inside) => {
    const made = Object.assign(document.createElement(name), props);
    made.append(...inside);
    return made;
  };
  const shape = (name, about = {}, text = "") => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(about)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  };

  // --- numbers, as the drawing writes them ---
  const said = (v) => {
    if (v === null || v === undefined) return "–";
    const size = Math.abs(v);
    if (size && (size < 1e-4 || size >= 1e15)) return v.toExponential(3);
    return v.toLocaleString("en", { maximumSignificantDigits: size >= 1e4 ? 15 : 4, maximumFractionDigits: size >= 1e4 ? 0 : 8 });
  };
  const tick = (v) => {
    const size = Math.abs(v);
    if (size && (size < 1e-4 || size >= 1e9)) return v.toExponential(2).replace(/\.?0*e\+?/, "e");
    if (size >= 1e6) return `${+(v / 1e6).toPrecision(6)}M`;
    if (size >= 1e4) return `${+(v / 1e3).toPrecision(6)}k`;
    return (+v.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 8 });
  };
  const nice = (low, high, most) => {
    const rough = (high - low) / Math.max(1, most);
    const size = 10 ** Math.floor(Math.log10(rough));
    const step = size * ([1, 2, 5].find((r) => r * size >= rough * 0.999) || 10);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(+(k * step).toPrecision(12));
    return found.length < 2 && most < 5 ? nice(low, high, Math.max(1, most) + 1) : found;
  };
  const decades = (low, high, most) => {
    const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    const between = last - first <= 2 ? [1, 2, 5] : [1];
    const every = Math.max(1, Math.ceil((last - first) / Math.max(1, most)));
    const found = [];
    for (let k = first; k <= last; k++)
      if (k % every === 0) for (const m of between) found.push(m * 10 ** k);
    const inside = found.filter((v) => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9));
    return inside.length > 1 ? inside : nice(low, high, most);
  };

  // --- one figure ---
  function enliven(figure) {
    const source = figure.querySelector(':scope > script[type="application/json"]');
    const plot = figure.querySelector(".plot");
    if (!source || !plot || figure.dataset.live) return;
    figure.dataset.live = "1";
    const told = JSON.parse(source.textContent);
    told.curves.forEach((c, k) => { if (!c.x) c.x = told.curves[k - 1].x; });
    const drawings = [...plot.querySelectorAll(":scope > svg")];
    const off = new Set();
    const named = told.names.length > 0;
    const zooms = !named && told.kind !== "heat" && told.curves.some((c) => c.x.length > 2);
    const warp = (v) => (told.logx ? Math.log10(v) : v);
    const unwarp = (v) => (told.logx ? 10 ** v : v);
    const whole = told.x.map(warp);
    let view = [...whole];

    const readout = html("div", { className: "readout" });
    readout.setAttribute("role", "status");
    plot.append(readout);

    const box = (svg) => svg.dataset.box.split(" ").map(Number);
    const shown = () => drawings.find((d) => d.getBoundingClientRect().width > 0) || drawings[0];
    const toSheet = (svg, event) => {
      const r = svg.getBoundingClientRect();
      const [, , w, h] = svg.getAttribute("viewBox").split(" ").map(Number);
      return [((event.clientX - r.left) / r.width) * w, ((event.clientY - r.top) / r.height) * h];
    };
    const place = (svg, x) => {
      const [left, , right] = box(svg);
      return left + ((warp(x) - view[0]) / (view[1] - view[0])) * (right - left);
    };

    // Which point of a curve is meant at x: the last that is not after it where a value holds, else the nearest.
    const nearest = (curve, x) => {
      const xs = curve.x;
      let [low, high] = [0, xs.length - 1];
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (xs[middle] <= x) low = middle; else high = middle - 1;
      }
      if (told.kind === "step" || low + 1 >= xs.length) return low;
      return Math.abs(warp(xs[low + 1]) - warp(x)) < Math.abs(warp(xs[low]) - warp(x)) ? low + 1 : low;
    };

    const line = (k, text) => {
      const row = html("div");
      const swatch = figure.querySelector(`.legend [data-s="${k}"] svg`);
      if (swatch) row.append(swatch.cloneNode(true));
      row.append(text);
      return row;
    };
    const value = (c, at) => {
      const name = c.name ? `${c.name}: ` : "";
      const sure = told.kind !== "span" && c.low && c.low[at] !== null && c.high[at] !== null && c.low[at] !== c.high[at];
      return `${name}${said(c.y[at])}${sure ? ` (${said(c.low[at])} to ${said(c.high[at])})` : ""}`;
    };

    function tell(svg, x, y, rows, title) {
      drawings.forEach((d) => d.querySelector(".cursor")?.remove());
      readout.replaceChildren(html("b", {}, title), ...rows);
      if (!svg) return;
      const [left, top, right, bottom] = box(svg);
      const about = svg.dataset.rows
        ? { x1: left, x2: right, y1: y, y2: y } : { x1: x, x2: x, y1: top, y2: bottom };
      if (told.kind !== "heat") svg.append(shape("line", { class: "cursor", ...about }));
      const [, , w, h] = svg.getAttribute("viewBox").split(" ").map(Number);
      const r = svg.getBoundingClientRect();
      const [px, py] = [(x / w) * r.width, (y / h) * r.height];
      const width = readout.offsetWidth;
      readout.style.left = `${Math.max(0, px + 14 + width > r.width ? px - width - 14 : px + 14)}px`;
      readout.style.top = `${Math.max(0, py - 10)}px`;
    }
    const hush = () => {
      drawings.forEach((d) => d.querySelector(".cursor")?.remove());
      readout.replaceChildren();
    };
    const live = () => told.curves.map((c, k) => [c, k]).filter(([c, k]) => !off.has(k) && c.x.length);

    // Between two of its points a line shows what lies between their values, and says so; beyond its ends nothing.
    const between = (c, x) => {
      const i = c.x.findLastIndex((v) => v <= x);
      if (i >= 0 && (c.x[i] === x || told.kind === "step")) return value(c, i);
      const name = c.name ? `${c.name}: ` : "";
      const [a, b] = [c.y[i], c.y[i + 1]];
      if (i < 0 || told.kind === "bar" || a === undefined || b === undefined || a === null || b === null) return `${name}–`;
      const share = (warp(x) - warp(c.x[i])) / (warp(c.x[i + 1]) - warp(c.x[i]));
      return `${name}≈ ${said(told.logy ? a * (b / a) ** share : a + share * (b - a))}`;
    };
    function tellNumber(svg, x, y) {
      const all = live();
      if (!all.length) return hush();
      const far = (c) => Math.abs(warp(c.x[nearest(c, x)]) - warp(x));
      const best = all.map(([c]) => c).reduce((a, b) => (far(b) < far(a) ? b : a));
      const at = told.kind === "step" ? x : best.x[nearest(best, x)];
      tell(svg, place(svg, at), y, all.map(([c, k]) => line(k, between(c, at))), `${said(at)} · ${told.xname}`);
    }
    function tellDot(svg, x, y) {
      let best = null;
      for (const [c, k] of live())
        c.x.forEach((v, i) => {
          const far = Math.abs(place(svg, v) - place(svg, x));
          if (!best || far < best.far) best = { c, k, i, far };
        });
      if (!best) return hush();
      const { c, k, i } = best;
      tell(svg, place(svg, c.x[i]), y, [line(k, value(c, i))], `${said(c.x[i])} · ${told.xname}`);
    }
    function tellName(svg, at) {
      const [left, top, right, bottom] = box(svg);
      const share = (at + 0.5) / told.names.length;
      const rows = live().map(([c, k]) => [c, k, c.x.indexOf(at)]).filter(([, , i]) => i >= 0);
      const [x, y] = svg.dataset.rows ? [(left + right) / 2, top + share * (bottom - top)] : [left + share * (right - left), (top + bottom) / 2];
      tell(svg, x, y, rows.map(([c, k, i]) => line(k, value(c, i))), told.names[at]);
    }
    function tellCell(svg, i, j) {
      const [left, top, right, bottom] = box(svg);
      const c = told.curves[0];
      const at = c.x.findIndex((v, k) => v === i && c.y[k] === j);
      const [x, y] = [left + ((i + 0.5) / told.names.length) * (right - left), top + ((j + 0.5) / told.ynames.length) * (bottom - top)];
      tell(svg, x, y, [html("div", {}, at < 0 ? "–" : said(c.v[at]))], `${told.ynames[j]} · ${told.names[i]}`);
    }
    const within = (v, n) => Math.min(n - 1, Math.max(0, Math.floor(v)));
    function point(svg, x, y) {
      const [left, top, right, bottom] = box(svg);
      const [across, down] = [(x - left) / (right - left), (y - top) / (bottom - top)];
      if (told.kind === "heat") return tellCell(svg, within(across * told.names.length, told.names.length), within(down * told.ynames.length, told.ynames.length));
      if (named) return tellName(svg, within((svg.dataset.rows ? down : across) * told.names.length, told.names.length));
      const at = unwarp(view[0] + Math.min(1, Math.max(0, across)) * (view[1] - view[0]));
      return told.kind === "dots" ? tellDot(svg, at, y) : tellNumber(svg, at, y);
    }

    // --- zoom: the marks are stretched, the numbers below are written anew ---
    const reset = html("button", { type: "button", textContent: "Whole range", hidden: true });
    function zoom(from, to) {
      const least = (whole[1] - whole[0]) / 1e4;
      view = to - from < least ? view : [Math.max(whole[0], from), Math.min(whole[1], to)];
      const zoomed = view[0] > whole[0] || view[1] < whole[1];
      reset.hidden = !zoomed;
      for (const svg of drawings) {
        const [left, top, right, bottom] = box(svg);
        const k = (whole[1] - whole[0]) / (view[1] - view[0]);
        const start = left + ((view[0] - whole[0]) / (whole[1] - whole[0])) * (right - left);
        svg.querySelector(".marks").setAttribute("transform", `translate(${left - k * start} 0) scale(${k} 1)`);
        const [low, high] = view.map(unwarp);
        const most = Math.max(2, (right - left) / 78);
        const times = new Map((told.times || []).filter(([v]) => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9)));
        const every = Math.max(1, Math.ceil(times.size / most));
        // The label of an axis of durations has no unit: between two of them, numbers have it.
        const word = (v) => times.size > 1 ? times.get(v) : tick(v) + (told.times?.length ? " s" : "");
        const values = times.size > 1 ? [...times.keys()].filter((_, n) => n % every === 0)
          : (told.logx ? decades : nice)(low, high, most);
        svg.querySelector(".across").replaceChildren(...values.flatMap((v) => {
          const x = place(svg, v);
          return [
            shape("line", { class: "grid", x1: x, x2: x, y1: top, y2: bottom }),
            shape("text", { class: "t", x, y: bottom + 17, "text-anchor": "middle" }, word(v)),
          ];
        }));
      }
      hush();
    }
    reset.addEventListener("click", () => { zoom(...whole); plot.focus(); });

    let from = null;
    const brush = shape("rect", { class: "brush" });
    plot.addEventListener("pointerdown", (event) => {
      const svg = event.target.closest(".plot > svg");
      if (svg && zooms && event.button === 0) {
        from = toSheet(svg, event)[0];
        plot.setPointerCapture(event.pointerId);
      }
    });
    plot.addEventListener("pointermove", (event) => {
      const svg = shown();
      const [x, y] = toSheet(svg, event);
      const [left, top, right, bottom] = box(svg);
      if (from !== null && Math.abs(x - from) > 4) {
        const [a, b] = [Math.max(left, Math.min(x, from)), Math.min(right, Math.max(x, from))];
        for (const [key, v] of Object.entries({ x: a, y: top, width: Math.max(0, b - a), height: bottom - top })) brush.setAttribute(key, v);
        svg.append(brush);
        return;
      }
      point(svg, x, y);
    });
    const drop = (event) => {
      if (from === null) return;
      const svg = shown();
      const [left, , right] = box(svg);
      const ends = [from, toSheet(svg, event)[0]].sort((a, b) => a - b).map((x) => view[0] + ((x - left) / (right - left)) * (view[1] - view[0]));
      const far = Math.abs(toSheet(svg, event)[0] - from);
      from = null;
      brush.remove();
      if (event.type === "pointerup" && far > 8) zoom(...ends);
    };
    plot.addEventListener("pointerup", drop);
    plot.addEventListener("pointercancel", drop);
    plot.addEventListener("pointerleave", () => { if (from === null) hush(); });
    plot.addEventListener("dblclick", () => { if (zooms) zoom(...whole); });

    // --- by keyboard ---
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", `${told.title}: arrow keys read it out${zooms ? ", + and - zoom" : ""}, Escape leaves`);
    const spot = [-1, 0];
    plot.addEventListener("keydown", (event) => {
      const move = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
      const svg = shown();
      const [, top, , bottom] = box(svg);
      if (event.key === "Escape") return zooms ? zoom(...whole) : hush();
      if (zooms && (event.key === "+" || event.key === "-")) {
        const [middle, half] = [(view[0] + view[1]) / 2, (view[1] - view[0]) / 2];
        event.preventDefault();
        return zoom(middle - half * (event.key === "+" ? 0.5 : 2), middle + half * (event.key === "+" ? 0.5 : 2));
      }
      if (!move) return undefined;
      event.preventDefault();
      if (told.kind === "heat") {
        spot[0] = within(spot[0] + move[0], told.names.length);
        spot[1] = within(spot[1] + move[1], told.ynames.length);
        return tellCell(svg, ...spot);
      }
      const by = move[0] + move[1];
      if (named) {
        spot[0] = within(spot[0] + by, told.names.length);
        return tellName(svg, spot[0]);
      }
      const first = live()[0];
      if (!first) return undefined;
      const inside = first[0].x.filter((x) => warp(x) >= view[0] && warp(x) <= view[1]);
      if (!inside.length) return undefined;
      spot[0] = within(spot[0] + by * Math.max(1, Math.round(inside.length / 50)), inside.length);
      return (told.kind === "dots" ? tellDot : tellNumber)(svg, inside[spot[0]], (top + bottom) / 2);
    });
    plot.addEventListener("blur", hush);

    // --- curves on and off ---
    for (const item of figure.querySelectorAll(".legend > li")) {
      const k = Number(item.dataset.s);
      const button = html("button", { type: "button" }, ...item.childNodes);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        if (off.has(k)) off.delete(k); else off.add(k);
        button.setAttribute("aria-pressed", String(!off.has(k)));
        for (const group of figure.querySelectorAll(`.marks g[data-s="${k}"]`)) group.classList.toggle("off", off.has(k));
      });
      item.replaceChildren(button);
    }

    const save = (kind) => {
      const button = html("button", { type: "button", textContent: `Save ${kind.toUpperCase()}` });
      button.addEventListener("click", () => saved(shown(), told.title, kind));
      return button;
    };
    plot.after(html("div", { className: "tools" }, reset, save("svg"), save("png")));
  }

  // --- a figure as a file: whole, with the colors that are seen ---
  const LOOKS = ["fill", "stroke", "stroke-width", "stroke-dasharray", "fill-opacity", "display"];
  function saved(svg, title, kind) {
    const copy = svg.cloneNode(true);
    const [from, to] = [svg.querySelectorAll("*"), copy.querySelectorAll("*")];
    from.forEach((node, k) => {
      const look = getComputedStyle(node);
      for (const name of LOOKS) if (look[name] !== "auto") to[k].setAttribute(name, look.getPropertyValue(name));
    });
    copy.querySelector(".paper").setAttribute("fill", getComputedStyle(document.body).backgroundColor);
    copy.querySelector(".cursor")?.remove();
    const full = svg.dataset.full.split(" ").map(Number);
    const about = { viewBox: full.join(" "), width: full[2], height: full[3], xmlns: SVG };
    for (const [key, value] of Object.entries(about)) copy.setAttribute(key, value);
    const drawing = new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
    const name = `${title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60) || "figure"}.${kind}`;
    if (kind === "svg") return keep(drawing, name);
    const picture = new Image();
    const address = URL.createObjectURL(drawing);
    picture.addEventListener("load", () => {
      const canvas = html("canvas", { width: full[2] * 2, height: full[3] * 2 });
      canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
      URL.revokeObjectURL(address);
      canvas.toBlob((blob) => keep(blob, name), "image/png");
    });
    picture.src = address;
    return undefined;
  }
  function keep(blob, name) {
    const link = html("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // --- tables that sort ---
  const key = (row, k) => {
    const cell = row.cells[k];
    if (cell.dataset.v !== undefined) return [0, Number(cell.dataset.v)];
    const text = cell.textContent.trim();
    return text === "–" ? [2, 0] : [1, text];
  };
  function sortable(table) {
    if (table.dataset.live) return;
    table.dataset.live = "1";
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, k) => {
      const button = html("button", { type: "button" }, ...head.childNodes);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [key(row, k), row]);
        rows.sort(([[a, p]], [[b, q]]) => {
          if (a === 2 || b === 2) return a - b; // what is not known stays last
          const by = a !== b ? a - b : typeof p === "number" ? p - q : p.localeCompare(q, "en", { numeric: true });
          return down ? -by : by;
        });
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  // --- light and dark ---
  function theme(header) {
    if (!header || header.querySelector(".theme")) return;
    const dark = () => (document.documentElement.dataset.theme
      || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const button = html("button", { type: "button", className: "theme" });
    const show = () => { button.textContent = dark() ? "Light" : "Dark"; };
    button.addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; show(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
    show();
    header.querySelector("h1").after(button);
  }

  // On paper all is open and nothing is zoomed away.
  const opened = [];
  addEventListener("beforeprint", () => {
    for (const d of document.querySelectorAll("details.table:not([open])")) { d.open = true; opened.push(d); }
  });
  addEventListener("afterprint", () => opened.splice(0).forEach((d) => { d.open = false; }));

  const live = (root = document) => {
    root.querySelectorAll("figure.figure").forEach(enliven);
    root.querySelectorAll("table").forEach(sortable);
    theme(document.querySelector("header"));
  };
  window.fleetlab = { live };
  live();
})();
