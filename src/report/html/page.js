// The roofline, the timeline and the table of all work. Text from the profile only ever becomes
// textContent: nothing here makes markup of strings.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";

  const svg = (name, attributes, parent) => {
    const node = document.createElementNS(SVG, name);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (parent) parent.append(node);
    return node;
  };
  const label = (parent, x, y, text, attributes) => {
    const node = svg("text", { x, y, ...attributes }, parent);
    node.textContent = text;
    return node;
  };

  // ------------------------------------------------------------------ numbers, as the report prints them

  const digits = (v) => (Math.abs(v) >= 99.95 || v === 0 ? v.toFixed(0) : Math.abs(v) >= 9.995 ? v.toFixed(1) : v.toFixed(2));
  const scaled = (v, units) => {
    let i = 0;
    while (Math.abs(v) >= 999.5 && i < units.length - 1) { v /= 1000; i += 1; }
    return (i === 0 ? v.toFixed(0) : digits(v)) + " " + units[i];
  };
  const ns = (v) => scaled(v, ["ns", "us", "ms", "s"]);
  const flops = (v) => scaled(v, ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"]);
  const bytes = (v) => scaled(v, ["B", "kB", "MB", "GB", "TB"]);
  const count = (v) => String(v).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
  const percent = (s) => {
    const p = s * 100;
    return p === 0 ? "0 %" : p < 0.1 ? "under 0.1 %" : p < 9.95 ? p.toFixed(1) + " %" : p.toFixed(0) + " %";
  };
  // Totals of the window are printed per step and GPU where steps are known, as everywhere in the report.
  const perStep = (v) => v / data.divisor;
  const perStepCount = (v) => {
    const whole = Math.round(v);
    return whole >= 1 && Math.abs(v - whole) <= 0.03 * whole ? count(whole) : v.toFixed(1);
  };
  const dash = (v, print) => (v === null ? "-" : print(v));

  // ------------------------------------------------------------------ light and dark

  const theme = $("theme");
  const isDark = () => (document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches);
  const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Use ${isDark() ? "light" : "dark"} colours`); };
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    nameTheme();
  });
  theme.hidden = false;
  nameTheme();
  for (const node of document.querySelectorAll(".needs-script")) node.hidden = false;

  // Paper has no buttons: whatever is folded is printed.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const node of folded) node.open = true;
  });
  addEventListener("afterprint", () => { for (const node of folded) node.open = false; });

  // A link to a finding opens what it is folded into.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // ------------------------------------------------------------------ tooltips

  const tip = $("tip");
  const showTip = (event, title, lines) => {
    tip.replaceChildren();
    const head = document.createElement("b");
    head.textContent = title;
    tip.append(head);
    for (const line of lines) {
      const node = document.createElement("div");
      node.textContent = line;
      tip.append(node);
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 8)) + "px";
  };
  const hideTip = () => { tip.hidden = true; };

  // ------------------------------------------------------------------ all work

  const S = data.sites;
  const total = S.time.length;
  const text = (i) => (i < 0 ? "" : data.strings[i]);
  const NAMES = ["layer", "operator", "direction", "arguments", "bound", "dtype", "kernel", "source", "family"];
  const named = (name, row) => text(S[name][row]);
  // A line of the table is the same work in all layers of a pattern: rows of `S`, the longest time first.
  const key = (r) => [text(S.pattern[r]) || named("layer", r), named("operator", r) || named("kernel", r), named("direction", r), named("arguments", r)].join("\n");
  const sum = (line, values) => line.reduce((all, r) => all + values[r], 0);
  // What all rows of a line have in common.
  const common = (line, value) => (line.every((r) => value(r) === value(line[0])) ? value(line[0]) : null);
  const commonName = (name) => (line) => common(line, (r) => named(name, r)) ?? "several";
  const slowdown = (line) => (line.some((r) => S.slowdown[r] === null) ? null : sum(line, S.time) / line.reduce((ideal, r) => ideal + S.time[r] / S.slowdown[r], 0));
  const layers = (line) => {
    const several = new Set(line.map((r) => S.layer[r])).size;
    return several === 1 ? named("layer", line[0]) : `${text(S.pattern[line[0]])} (${several} layers)`;
  };
  const findings = (line) => [...new Set(line.flatMap((r) => S.findings[r]))].sort((a, b) => a - b);
  // Value of a line to sort by, and to print. Absent numbers come last whichever way is sorted.
  const plain = (print, style) => ({ sort: print, print, ...style });
  const COLUMNS = [
    plain(layers, { wide: true }),
    plain((l) => named("operator", l[0]) || named("kernel", l[0]), { wide: true, mono: true }),
    plain((l) => named("direction", l[0])),
    plain((l) => named("arguments", l[0]), { wide: true, mono: true }),
    { sort: (l) => sum(l, S.calls), print: (l) => (data.divisor === 1 ? count(sum(l, S.calls)) : perStepCount(perStep(sum(l, S.calls)))), number: true },
    { sort: (l) => sum(l, S.time), print: (l) => ns(perStep(sum(l, S.time))), number: true },
    { sort: (l) => sum(l, S.time), print: (l) => percent(Math.min(1, sum(l, S.share))), number: true },
    { sort: slowdown, print: (l) => dash(slowdown(l), (v) => digits(v) + "x"), number: true },
    plain(commonName("bound")),
    plain(commonName("dtype")),
    { sort: (l) => common(l, (r) => S.tensor_core[r]), print: (l) => dash(common(l, (r) => S.tensor_core[r]), (v) => (v ? "yes" : "no")) },
    { sort: (l) => common(l, (r) => S.intensity[r]), print: (l) => dash(common(l, (r) => S.intensity[r]), digits), number: true },
    plain((l) => named("kernel", l[0]), { wide: true, mono: true }),
    plain(commonName("source"), { wide: true, mono: true }),
    { sort: (l) => findings(l)[0] ?? null, findings: true, number: false },
  ];
  const PAGE = 50;
  const state = { lines: [], open: new Set(), sort: 5, down: true, page: 0, chosen: -1, finding: 0 };
  const body = $("site-rows");
  let haystack = null;
  // One string per row, made when it is first searched.
  const searchable = () => {
    haystack ??= Array.from({ length: total }, (_, r) => NAMES.map((n) => named(n, r)).join("\n").toLowerCase());
    return haystack;
  };

  const inOrder = (lines) => {
    const column = COLUMNS[state.sort];
    const values = lines.map((line, at) => [column.sort(line), at, line]);
    const compare = ([x, a], [y, b]) => {
      const [noX, noY] = [x === null || x === "", y === null || y === ""];
      if (noX || noY) return noX && noY ? a - b : noX ? 1 : -1;
      const order = x < y ? -1 : x > y ? 1 : 0;
      return order === 0 ? a - b : state.down ? -order : order;
    };
    return values.sort(compare).map(([, , line]) => line);
  };

  // The lines of these rows; a line that is opened is followed by its rows, one by one.
  const fold = (rows) => {
    const lines = new Map();
    for (const r of rows) {
      const name = key(r);
      if (lines.has(name)) lines.get(name).push(r); else lines.set(name, [r]);
    }
    return inOrder([...lines.values()]).flatMap((line) => (line.length > 1 && state.open.has(key(line[0])) ? [line, ...inOrder(line.map((r) => [r]))] : [line]));
  };

  const select = () => {
    const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const hay = words.length ? searchable() : null;
    const wanted = ["direction", "bound", "family"].map((n) => [n, $(n).value]).filter(([, v]) => v !== "");
    const rows = Array.from({ length: total }, (_, r) => r).filter((r) =>
      (state.chosen < 0 || r === state.chosen)
      && (state.finding === 0 || S.findings[r].includes(state.finding))
      && wanted.every(([n, v]) => named(n, r) === v)
      && (!hay || words.every((w) => hay[r].includes(w))));
    state.time = sum(rows, S.time);
    state.lines = fold(rows);
    state.page = 0;
    $("only").textContent = state.finding ? `only the work of finding ${state.finding}` : "";
    keepInAddress();
    draw();
  };

  // The filter is part of the address, so that a view can be linked to: #work?q=lm_head&bound=math
  const FIELDS = { q: "filter", direction: "direction", bound: "bound", kind: "family" };
  const keepInAddress = () => {
    const query = new URLSearchParams();
    for (const name in FIELDS) if ($(FIELDS[name]).value) query.set(name, $(FIELDS[name]).value);
    if (state.finding) query.set("finding", state.finding);
    const wanted = String(query) ? "#work?" + query : "";
    if (wanted === location.hash || (!wanted && !location.hash.startsWith("#work?"))) return;
    try { history.replaceState(null, "", wanted || location.pathname + location.search); } catch { /* not allowed for this file */ }
  };
  const fromAddress = () => {
    if (!body || !location.hash.startsWith("#work?")) return;
    const query = new URLSearchParams(location.hash.slice("#work?".length));
    for (const name in FIELDS) $(FIELDS[name]).value = query.get(name) ?? "";
    state.finding = Number(query.get("finding")) || 0;
    state.chosen = -1;
    select();
    $("sites").scrollIntoView();
  };

  const row = (line) => {
    const tr = document.createElement("tr");
    if (line[0] === state.chosen) tr.className = "chosen";
    COLUMNS.forEach((column, at) => {
      const td = document.createElement("td");
      td.className = (column.number ? "num" : "") + (column.wide ? "name" : "") + (column.mono ? " mono" : "");
      if (column.findings) {
        const numbers = findings(line);
        numbers.forEach((n, i) => {
          if (i) td.append(", ");
          const a = document.createElement("a");
          a.href = "#finding-" + n;
          a.textContent = n;
          td.append(a);
        });
        if (!numbers.length) td.textContent = "-";
      } else if (at === 0 && line.length > 1) {
        const button = document.createElement("button");
        const open = state.open.has(key(line[0]));
        button.type = "button";
        button.textContent = column.print(line);
        button.setAttribute("aria-expanded", open);
        button.addEventListener("click", () => {
          if (open) state.open.delete(key(line[0])); else state.open.add(key(line[0]));
          const page = state.page;
          select();
          state.page = page;
          draw();
        });
        td.append(button);
      } else {
        td.textContent = column.print(line) || "-";
      }
      tr.append(td);
    });
    return tr;
  };

  const draw = () => {
    const from = state.page * PAGE;
    const lines = state.lines.slice(from, from + PAGE);
    body.replaceChildren(...lines.map(row));
    $("previous").disabled = state.page === 0;
    $("next").disabled = from + PAGE >= state.lines.length;
    $("site-status").textContent = lines.length
      ? `${count(from + 1)} to ${count(from + lines.length)} of ${count(state.lines.length)}, ${ns(perStep(state.time))} together`
      : "nothing matches";
  };

  if (body) {
    const heads = [...document.querySelectorAll("#sites th")];
    const mark = () => heads.forEach((th, i) => {
      if (i === state.sort) th.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      else th.removeAttribute("aria-sort");
    });
    heads.forEach((th, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = th.textContent;
      button.addEventListener("click", () => {
        state.down = state.sort === i ? !state.down : Boolean(COLUMNS[i].number);
        state.sort = i;
        mark();
        select();
      });
      th.replaceChildren(button);
    });
    for (const name of ["direction", "bound", "family"]) {
      const values = [...new Set(S[name])].map(text).filter(Boolean).sort();
      for (const value of values) $(name).append(new Option(value, value));
      $(name).addEventListener("change", select);
    }
    let timer = 0;
    $("filter").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(select, 120); });
    $("clear").addEventListener("click", () => {
      for (const id of Object.values(FIELDS)) $(id).value = "";
      state.finding = 0;
      choose(-1);
    });
    $("previous").addEventListener("click", () => { state.page -= 1; draw(); });
    $("next").addEventListener("click", () => { state.page += 1; draw(); });
    mark();
    if (location.hash.startsWith("#work?")) fromAddress(); else select();
    addEventListener("hashchange", fromAddress);
    const table = document.querySelector("#sites .scroll");
    const hint = document.querySelector("#sites .wide-hint");
    const hinted = () => { hint.hidden = table.scrollWidth <= table.clientWidth + 1; };
    addEventListener("resize", hinted);
    hinted();
  }

  // ------------------------------------------------------------------ roofline

  const dots = new Map();
  // Shows one site in the table and in the plot; -1 shows all.
  const choose = (r) => {
    dots.get(state.chosen)?.classList.remove("chosen");
    state.chosen = r;
    dots.get(r)?.classList.add("chosen");
    select();
  };

  const MAX_DOTS = 2000;
  const plottable = [];
  for (let r = 0; r < total && plottable.length < MAX_DOTS; r += 1) {
    if (S.flops[r] > 0 && S.bytes[r] > 0 && S.time[r] > 0) plottable.push(r);
  }

  const roofline = () => {
    dots.clear();
    const W = Math.max(300, $("roofline-chart").clientWidth || 1000);
    const [H, L, R, T, B] = [Math.min(470, Math.max(300, W * 0.6)), 74, 12, 18, 46];
    const rate = (r) => (S.flops[r] / S.time[r]) * 1e9;
    const intensity = (r) => S.flops[r] / S.bytes[r];
    const ceilings = data.ceilings;
    const bandwidth = data.bandwidth;
    let [x0, x1] = [Infinity, 0];
    let [y0, y1] = [Infinity, 0];
    const widen = (x, y) => { x0 = Math.min(x0, x); x1 = Math.max(x1, x); y0 = Math.min(y0, y); y1 = Math.max(y1, y); };
    for (const r of plottable) widen(intensity(r), rate(r));
    for (const c of ceilings) widen((c.flops_per_s / bandwidth) * 4, c.flops_per_s);
    const span = (low, high) => [Math.floor(Math.log10(low) - 0.1), Math.ceil(Math.log10(high) + 0.05)];
    const [xa, xb] = span(Math.max(x0, 2e-2), x1);
    let [ya, yb] = span(Math.max(y0, y1 * 1e-6), y1);
    const X = (v) => L + ((Math.log10(v) - xa) / (xb - xa)) * (W - L - R);
    const Y = (v) => H - B - ((Math.log10(v) - ya) / (yb - ya)) * (H - T - B);
    const clampY = (v) => Math.min(H - B, Math.max(T, Y(v)));
    const chart = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-labelledby": "roofline-text" });
    for (let e = xa; e <= xb; e += 1) {
      svg("line", { x1: X(10 ** e), x2: X(10 ** e), y1: T, y2: H - B, class: "grid" }, chart);
      label(chart, X(10 ** e), H - B + 18, e < 0 ? (10 ** e).toPrecision(1) : count(10 ** e), { "text-anchor": e === xb ? "end" : "middle" });
    }
    for (let e = ya; e <= yb; e += 1) {
      svg("line", { x1: L, x2: W - R, y1: Y(10 ** e), y2: Y(10 ** e), class: "grid" }, chart);
      label(chart, L - 8, Y(10 ** e) + 4, scaled(10 ** e, ["", "k", "M", "G", "T", "P"]), { "text-anchor": "end" });
    }
    label(chart, (L + W - R) / 2, H - 8, "FLOP per byte of memory traffic", { "text-anchor": "middle" });
    label(chart, 14, (T + H - B) / 2, "FLOP/s", { "text-anchor": "middle", transform: `rotate(-90 14 ${(T + H - B) / 2})` });
    const names = [];
    if (ceilings.length && bandwidth > 0) {
      const top = ceilings[0].flops_per_s;
      const left = Math.max(10 ** xa, 10 ** ya / bandwidth);
      svg("path", { class: "roof", d: `M${X(left)} ${Y(left * bandwidth)}L${X(top / bandwidth)} ${Y(top)}` }, chart);
      names.push([X(left) + 12, Y(left * bandwidth) - 34, `${bytes(bandwidth)}/s`, { class: "ink halo" }]);
      let lowest = -Infinity;
      ceilings.forEach((c, i) => {
        const y = clampY(c.flops_per_s);
        svg("path", { class: i ? "roof low" : "roof", d: `M${X(c.flops_per_s / bandwidth)} ${y}L${W - R} ${y}` }, chart);
        if (y - lowest < 15) return;
        lowest = y;
        names.push([W - R - 4, y - 5, `${c.name}, ${flops(c.flops_per_s)}/s`, { "text-anchor": "end", class: "ink halo" }]);
      });
    }
    // The largest first, so that small ones lie on top.
    for (const r of plottable) {
      const bound = named("bound", r);
      const dot = svg("circle", {
        cx: X(Math.max(intensity(r), 10 ** xa)).toFixed(1), cy: clampY(rate(r)).toFixed(1),
        r: (3 + 22 * Math.sqrt(S.share[r])).toFixed(1),
        class: "dot " + (["math", "memory", "latency"].includes(bound) ? bound : "other"),
      }, chart);
      dot.dataset.row = r;
      dots.set(r, dot);
    }
    for (const [x, y, name, attributes] of names) label(chart, x, y, name, attributes);
    chart.addEventListener("pointermove", (event) => {
      const r = event.target.dataset?.row;
      if (r === undefined) { hideTip(); return; }
      showTip(event, named("layer", r) || named("operator", r), [
        `${named("operator", r)} (${named("direction", r)})`, named("arguments", r),
        `${ns(perStep(S.time[r]))}, ${percent(S.share[r])} of GPU time`,
        `${flops(rate(r))}/s at ${digits(intensity(r))} FLOP/B` + (S.slowdown[r] === null ? "" : `, ${digits(S.slowdown[r])}x slower than ideal`),
      ].filter(Boolean));
    });
    chart.addEventListener("pointerleave", hideTip);
    chart.addEventListener("click", (event) => {
      const r = event.target.dataset?.row;
      if (r === undefined) return;
      choose(Number(r) === state.chosen ? -1 : Number(r));
      $("sites").scrollIntoView();
    });
    $("roofline-chart").replaceChildren(chart);
    const most = plottable.length === MAX_DOTS ? `The ${count(MAX_DOTS)} most expensive call sites are shown. ` : "";
    $("roofline-text").textContent = `${most}Each dot is one call site, sized by its share of time. Dots on the line run at peak; the further below, the slower. Click a dot to find it in the table.`;
  };
  // A drawing is made for its width, so that its text keeps its size; a new width draws it again.
  const redrawn = (id, draw) => {
    let width = $(id).clientWidth;
    new ResizeObserver(() => {
      if ($(id).clientWidth === width) return;
      width = $(id).clientWidth;
      requestAnimationFrame(draw);
    }).observe($(id));
  };
  if (plottable.length && data.bandwidth > 0) {
    $("roofline-section").hidden = false;
    roofline();
    redrawn("roofline-chart", roofline);
  }
  else document.querySelector('nav a[href="#roofline"]').hidden = true;

  // ------------------------------------------------------------------ timeline

  const timeline = () => {
    const t = data.timeline;
    const view = { from: 0, to: t.ns };
    const doubted = t.doubted;
    const place = $("timeline-chart");
    // Layers of a model differ at the end of their names.
    const shorten = (name, room) => {
      const most = Math.max(4, Math.floor(room / 6.6));
      return name.length <= most ? name : "\u2026" + name.slice(name.length - most + 1);
    };
    // Busy shares of equal parts of a span as one path of bars.
    const bars = (shares, start, length, y, height, X) => {
      const width = length / shares.length;
      let path = "";
      const first = Math.max(0, Math.floor((view.from - start) / width));
      const last = Math.min(shares.length, Math.ceil((view.to - start) / width));
      for (let i = first; i < last; i += 1) {
        if (shares[i] <= 0) continue;
        const a = Math.max(view.from, start + i * width);
        const b = Math.min(view.to, start + (i + 1) * width);
        const h = Math.max(1, height * shares[i]);
        path += `M${X(a).toFixed(1)} ${y + height}v${(-h).toFixed(1)}H${(X(b) + 0.15).toFixed(1)}v${h.toFixed(1)}z`;
      }
      return path;
    };
    // A time on the axis, with as many digits as tell it from the next of so many marks.
    const moment = (time, marks) => {
      const [unit, name] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]].find(([u]) => view.to >= u) ?? [1, "ns"];
      const apart = (view.to - view.from) / marks / unit;
      return (time / unit).toFixed(Math.min(9, Math.max(0, 1 - Math.floor(Math.log10(apart))))) + " " + name;
    };
    // What the launching threads did in gaps: the five longest activities have colors of their own.
    const activities = new Map();
    for (const gap of t.devices.flatMap((d) => d.gaps)) {
      for (const a of gap.host) activities.set(a.activity, (activities.get(a.activity) ?? 0) + a.ns);
    }
    const ranked = [...activities].sort((a, b) => b[1] - a[1]).map(([name]) => name);
    const shade = (activity) => `host${Math.min(Math.max(ranked.indexOf(activity), 0), 5)}`;
    let scale = null;
    const draw = () => {
      const W = Math.max(300, place.clientWidth || 1000);
      const [R, TOP, ROW, LANE, GAP] = [8, 26, 46, 16, 8];
      const hosts = t.devices.filter((d) => d.gaps.some((gap) => gap.host.length));
      const names = [...t.devices.map((d) => d.device), ...hosts.map((d) => `host of ${d.device}`), ...t.lanes.map((l) => l.name)];
      const longest = Math.max(...names.map((n) => n.length)) * 6.8 + 14;
      const L = Math.round(Math.min(longest, W * 0.3, 240));
      const heads = (t.lanes.some((l) => l.kind === "stream") ? 1 : 0) + (t.lanes.some((l) => l.kind === "layer") ? 1 : 0);
      const H = TOP + t.devices.length * (ROW + GAP) + t.lanes.length * (LANE + 3) + heads * 20 + 24
        + (hosts.length ? hosts.length * (LANE + 3) + 20 : 0);
      const X = (time) => L + ((time - view.from) / (view.to - view.from)) * (W - L - R);
      scale = { L, R, W };
      const chart = svg("svg", { viewBox: `0 0 ${W} ${H}`, width: W, height: H, role: "img", "aria-label": "Busy time and gaps of each GPU, what the host did in the gaps, and busy time of each stream and layer over the window" });
      const inside = (start, length) => start < view.to && start + length > view.from;
      const clip = (time) => Math.min(view.to, Math.max(view.from, time));
      const named = (y, name, attributes) => {
        const node = label(chart, L - 8, y, shorten(name, L - 10), { "text-anchor": "end", ...attributes });
        const title = svg("title", {}, node);
        title.textContent = name;
      };
      let y = TOP;
      t.devices.forEach((device, d) => {
        named(y + ROW / 2 + 4, device.device, { class: "ink" });
        svg("rect", { x: L, y, width: W - L - R, height: ROW, class: "back" }, chart);
        svg("path", { d: bars(device.busy, device.start_ns, device.ns, y, ROW, X), class: "busy" }, chart);
        device.gaps.forEach((gap, g) => {
          if (!inside(gap.start_ns, gap.ns)) return;
          const [a, b] = [X(clip(gap.start_ns)), X(clip(gap.start_ns + gap.ns))];
          const rect = svg("rect", { x: a, y: y + ROW - 9, width: Math.max(b - a, 0.8), height: 9, class: doubted ? "gap doubted" : "gap" }, chart);
          rect.dataset.gap = `${d}.${g}`;
          if (b - a > gap.cause.length * 6.4 + 8) {
            label(chart, (a + b) / 2, y + ROW - 14, gap.cause, { "text-anchor": "middle", class: "ink cause" });
          }
        });
        y += ROW + GAP;
      });
      if (hosts.length) {
        let x = L;
        ["Host in gaps:", ...ranked.slice(0, 5)].forEach((name, i) => {
          const width = name.length * 6.8 + 26;
          if (x + width > W - R) return;
          if (i > 0) svg("rect", { x, y: y + 4, width: 10, height: 10, class: shade(name) }, chart);
          label(chart, i > 0 ? x + 14 : x, y + 13, name, {});
          x += i > 0 ? width : width - 14;
        });
        y += 20;
      }
      t.devices.forEach((device, d) => {
        if (!hosts.includes(device)) return;
        named(y + LANE - 4, `host of ${device.device}`, {});
        svg("rect", { x: L, y, width: W - L - R, height: LANE, class: "back" }, chart);
        device.gaps.forEach((gap, g) => {
          const main = gap.host[0];
          if (!main || !inside(gap.start_ns, gap.ns)) return;
          const [a, b] = [X(clip(gap.start_ns)), X(clip(gap.start_ns + gap.ns))];
          const rect = svg("rect", { x: a, y, width: Math.max(b - a, 0.8), height: LANE, class: shade(main.activity) }, chart);
          rect.dataset.gap = `${d}.${g}`;
          if (b - a > main.activity.length * 6.4 + 8) {
            label(chart, (a + b) / 2, y + LANE - 4, main.activity, { "text-anchor": "middle", class: "ink cause" });
          }
        });
        y += LANE + 3;
      });
      let kind = "";
      for (const lane of t.lanes) {
        if (lane.kind !== kind) {
          kind = lane.kind;
          label(chart, L, y + 13, kind === "stream" ? "Streams" : "Layers", {});
          y += 20;
        }
        named(y + LANE - 4, lane.name, {});
        svg("rect", { x: L, y, width: W - L - R, height: LANE, class: "back" }, chart);
        svg("path", { d: bars(lane.busy.map((p) => p / 100), 0, t.ns, y, LANE, X), class: kind === "stream" ? "busy" : "layer" }, chart);
        y += LANE + 3;
      }
      let last = -Infinity;
      for (const step of t.steps) {
        if (step.start_ns < view.from || step.start_ns > view.to) continue;
        const x = X(step.start_ns);
        if (x - last < 6) continue;
        svg("line", { x1: x, x2: x, y1: TOP - 6, y2: H - 22, class: "step" }, chart);
        if (x - last >= 44) { label(chart, x + 3, TOP - 10, "step " + step.number); last = x; }
      }
      const ticks = W < 560 ? 2 : 4;
      for (let i = 0; i <= ticks; i += 1) {
        const time = view.from + ((view.to - view.from) * i) / ticks;
        label(chart, X(time), H - 4, moment(time, ticks), { "text-anchor": i === 0 ? "start" : i === ticks ? "end" : "middle" });
      }
      place.replaceChildren(chart);
      $("timeline-range").textContent = `${moment(view.from, ticks)} to ${moment(view.to, ticks)}`;
    };
    let pending = false;
    const redraw = () => {
      if (pending) return;
      pending = true;
      requestAnimationFrame(() => { pending = false; draw(); });
    };
    const show = (from, to) => {
      // A thousandth of a lane's part is as far as it makes sense to zoom.
      const length = Math.min(t.ns, Math.max(to - from, t.ns / 1e6, 1));
      from = Math.min(Math.max(0, from), t.ns - length);
      [view.from, view.to] = [from, from + length];
      redraw();
    };
    // The time at a horizontal position of the pointer.
    const timeAt = (clientX) => {
      const x = clientX - place.getBoundingClientRect().left;
      const share = (x - scale.L) / (scale.W - scale.L - scale.R);
      return view.from + Math.min(1, Math.max(0, share)) * (view.to - view.from);
    };
    const zoom = (factor, around = (view.from + view.to) / 2) => {
      show(around - (around - view.from) * factor, around + (view.to - around) * factor);
    };
    const move = (share) => {
      const by = share * (view.to - view.from);
      show(view.from + by, view.to + by);
    };
    const moves = {
      in: () => zoom(0.5), out: () => zoom(2), earlier: () => move(-0.5), later: () => move(0.5), all: () => show(0, t.ns),
    };
    $("timeline").addEventListener("click", (event) => moves[event.target.dataset?.zoom]?.());
    const keys = {
      "+": moves.in, "=": moves.in, "-": moves.out, "0": moves.all, Home: moves.all,
      ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), ArrowUp: moves.in, ArrowDown: moves.out,
    };
    place.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    place.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      const turned = event.deltaY || event.deltaX;
      if (event.shiftKey) move(Math.sign(turned) * 0.1);
      else zoom(turned > 0 ? 1.25 : 0.8, timeAt(event.clientX));
    }, { passive: false });
    let start = null;
    let band = null;
    place.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      start = event.clientX;
    });
    addEventListener("pointermove", (event) => {
      if (start === null || Math.abs(event.clientX - start) < 4) return;
      const chart = place.querySelector("svg");
      if (!band || !band.isConnected) band = svg("rect", { y: 0, height: chart.getAttribute("height"), class: "band" }, chart);
      const left = place.getBoundingClientRect().left;
      const [a, b] = [Math.min(start, event.clientX) - left, Math.max(start, event.clientX) - left];
      band.setAttribute("x", a);
      band.setAttribute("width", b - a);
    });
    addEventListener("pointerup", (event) => {
      if (start === null) return;
      const [a, b] = [timeAt(Math.min(start, event.clientX)), timeAt(Math.max(start, event.clientX))];
      const dragged = Math.abs(event.clientX - start) >= 4;
      start = null;
      band?.remove();
      if (dragged && b > a) show(a, b);
    });
    place.addEventListener("dblclick", (event) => zoom(0.5, timeAt(event.clientX)));
    place.addEventListener("pointermove", (event) => {
      const at = event.target.dataset?.gap;
      if (at === undefined) { hideTip(); return; }
      const [d, g] = at.split(".").map(Number);
      const gap = t.devices[d].gaps[g];
      showTip(event, `idle for ${ns(gap.ns)}`, [
        `cause: ${gap.cause}${doubted ? " (unreliable in this capture)" : ""}`,
        gap.call ? `host call: ${gap.call}` : "", gap.inside ? `in: ${gap.inside}` : "",
        gap.short_calls ? `in many calls of: ${gap.short_calls}` : "", gap.at_end ? "after the last work of the step" : "",
        gap.before ? `before: ${gap.before}` : gap.before_copy ? "before a copy to the GPU" : "",
        gap.next_kernel ? `then: ${gap.next_kernel}` : "",
        ...gap.host.map((a) => `${a.activity}${a.name ? `: ${a.name}` : ""}, ${ns(a.ns)}`),
      ].filter(Boolean));
    });
    place.addEventListener("pointerleave", hideTip);
    $("timeline").hidden = false;
    draw();
    redrawn("timeline-chart", redraw);
  };
  if ($("timeline") && data.timeline.ns > 0 && data.timeline.devices.length) timeline();
  document.documentElement.dataset.ready = "true";
})();
