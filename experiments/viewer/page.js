"use strict";
// The viewer's page. Texts of runs reach the document as text nodes only, and the charts as data only.
(async () => {
  const get = (id) => document.getElementById(id);
  const packed = Uint8Array.from(atob(get("data").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = await new Response(stream).json();

  const ROWS = 200; // of the table at first
  const BANDS = 60; // most curves with bands
  const DRAWN = 60000; // most points that are drawn at once
  const FIELDS = 8; // most columns of fields that differ
  const DASHES = [[1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [1, 3], [12, 4], [4, 1], [1, 1]];
  const NOT_COMPARED = new Set(data.not_compared);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const MANY = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#9c755f", "#17a5b8", "#d4a600", "#ff8fa3", "#79706e",
    "#7fb2e5", "#a5651f", "#8cd17d", "#a11d33", "#6a3d9a", "#2f4b7c", "#86bcb6", "#b6992d", "#d37295", "#499894"];
  const BRIGHTER = { "#2f4b7c": "#6f8fd0", "#a11d33": "#d6506a", "#6a3d9a": "#9d75cf", "#000000": "#f0f0f0", "#0072B2": "#4aa3df", "#D55E00": "#f0803c", "#009E73": "#2fc79a" };

  // ---------------------------------------------------------------- state, kept in the address

  const START = {
    group: data.groups[0].name, panel: "", filter: "", metric: "accuracy", x: "round", smooth: 1, band: true, log: false,
    hidden: [], hiddenReadouts: [], sort: "", down: true, run: "", other: "", every: false,
    mapX: "", mapY: "", mapReadout: "", mapOf: "best", reload: true,
  };
  const state = { ...START };
  try {
    const saved = JSON.parse(decodeURIComponent(location.hash.slice(1)) || "{}");
    for (const name of Object.keys(state)) {
      if (typeof saved[name] === typeof state[name] && Array.isArray(saved[name]) === Array.isArray(state[name])) state[name] = saved[name];
    }
  } catch (error) { /* not an address of this page */ }
  function save() {
    const changed = Object.entries(state).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(START[name]));
    const hash = changed.length ? "#" + encodeURIComponent(JSON.stringify(Object.fromEntries(changed))) : "#";
    try { history.replaceState(null, "", hash); } catch (error) { /* an embedded page */ }
  }

  // ---------------------------------------------------------------- elements and texts

  function element(tag, properties = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name in made && name !== "list") made[name] = value;
      else made.setAttribute(name, value);
    }
    made.append(...children.map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
    return made;
  }
  function choose(select, options, value, text = (option) => option) {
    select.replaceChildren(...options.map((option) => element("option", { value: option, selected: option === value }, text(option))));
    if (!options.includes(value) && options.length) select.value = options[0];
    return select.value;
  }
  const text = (value) => (value === null || value === undefined ? "" : Array.isArray(value) ? value.map(text).join(", ") : String(value));
  const short = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(5))) : "");
  const isShare = (metric) => Boolean(data.metrics[metric]?.share);
  const lower = (metric) => /loss|error/.test(metric);
  const scaled = (metric, value) => (value === null || value === undefined ? null : isShare(metric) ? 100 * value : value);
  function shown(metric, value) {
    if (value === null || value === undefined) return "";
    return isShare(metric) ? (100 * value).toFixed(2) : short(value);
  }
  const heading = (metric) => data.metrics[metric]?.label ?? metric;

  // ---------------------------------------------------------------- runs and groups

  for (const run of data.runs) {
    run.byName = new Map(run.curves.map((curve) => [`${curve.readout}\n${curve.metric}`, curve]));
    run.words = `${run.name}\n${run.state}\n${Object.values(run.config).map(text).join("\n")}`.toLowerCase();
  }
  const byName = new Map(data.runs.map((run) => [run.name, run]));
  for (const group of data.groups) {
    group.all = group.entries.map(([run, readout, label, panel]) => ({ run: data.runs[run], readout, label: group.labels[label], color: label, panel }));
    group.runs = [...new Set(group.all.map((entry) => entry.run))];
    group.panels = [...new Set(group.all.map((entry) => entry.panel))];
    group.readouts = [...new Set(group.all.map((entry) => entry.readout))];
    group.metrics = [...new Set(group.runs.flatMap((run) => run.curves.map((curve) => curve.metric)))];
    group.axes = ["round", ...Object.keys(data.axes).filter((axis) => axis !== "round" && group.runs.some((run) => axis in run.axes))];
  }
  const curveOf = (entry, metric = state.metric) => entry.run.byName.get(`${entry.readout}\n${metric}`);
  const scoreOf = (entry, metric = state.metric) => {
    const curve = curveOf(entry, metric);
    return curve ? curve.final?.mean ?? (entry.run.state === "unfinished" ? curve.last : null) : null;
  };
  const valueOf = (run, field) => run.parameters[field] ?? run.config[field] ?? (field in data.defaults ? data.defaults[field] : null);
  // Fields in which the runs of the part differ.
  function differing() {
    group.differing ??= {};
    return (group.differing[state.panel] ??= differences([...new Set(group.all.filter((entry) => entry.panel === state.panel).map((entry) => entry.run))]));
  }
  function differences(runs) {
    const names = new Set(runs.flatMap((run) => [...Object.keys(run.config), ...Object.keys(run.parameters)]));
    const found = [...names].filter((name) => !NOT_COMPARED.has(name) && new Set(runs.map((run) => JSON.stringify(valueOf(run, name)))).size > 1);
    // A choice whose name is the same everywhere is described by its parameters.
    const bare = (name) => new Set(runs.map((run) => text(valueOf(run, name)).split(":")[0])).size === 1;
    return found.filter((name) => !(bare(name) && found.some((other) => other.startsWith(`${name}.`))));
  }

  let group;
  function current() {
    group = data.groups.find((each) => each.name === state.group) ?? data.groups.find((each) => each.heading === state.group) ?? data.groups[0];
    return group;
  }

  // ---------------------------------------------------------------- filter

  const EXTRA = ["seeds", "round", "megabytes", "seconds", "simulated_seconds", "state", "run", "readout"];
  function parsedFilter() {
    const problems = [];
    const tests = state.filter.split(/\s+/).filter(Boolean).map((word) => {
      const found = word.match(/^([A-Za-z_][\w.]*)(!=|>=|<=|=|>|<)(.*)$/);
      if (!found) return (entry) => `${entry.label}\n${entry.readout}\n`.toLowerCase().includes(word.toLowerCase()) || entry.run.words.includes(word.toLowerCase());
      const [, name, sign, wanted] = found;
      const known = EXTRA.includes(name) || name in data.defaults || name in data.metrics || data.runs.some((run) => name in run.parameters || name in run.config);
      if (!known) problems.push(`there is no field '${name}'`);
      return (entry) => compared(fieldOf(entry, name), sign, wanted, name);
    });
    return { problems, passes: (entry) => tests.every((test) => test(entry)) };
  }
  function fieldOf(entry, name) {
    if (name === "state") return entry.run.state;
    if (name === "run") return entry.run.name;
    if (name === "readout") return entry.readout;
    if (name === "seeds") return entry.run.numbers.seeds.length;
    if (name in data.metrics) return scoreOf(entry, name);
    return EXTRA.includes(name) ? entry.run.numbers[name] : valueOf(entry.run, name);
  }
  function compared(value, sign, wanted, name) {
    const number = Number(wanted);
    if (sign === "=" || sign === "!=") {
      const own = text(value).toLowerCase(), other = wanted.toLowerCase();
      const same = own === other || own.startsWith(`${other}:`) || (wanted !== "" && typeof value === "number" && value === number)
        || (Array.isArray(value) && value.some((each) => text(each).toLowerCase() === other || text(each).toLowerCase().startsWith(`${other}:`)));
      return same === (sign === "=");
    }
    if (typeof value !== "number" || wanted === "" || Number.isNaN(number)) return false;
    const limit = isShare(name) && number > 1 ? number / 100 : number;
    return { ">": value > limit, "<": value < limit, ">=": value >= limit, "<=": value <= limit }[sign];
  }

  // ---------------------------------------------------------------- curves

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function colorOf(place, count, given) {
    const fixed = given[place] ?? (count <= data.palette.length ? data.palette[place] : count <= MANY.length ? MANY[place] : null);
    if (fixed) return dark.matches ? BRIGHTER[fixed] ?? fixed : fixed;
    return `hsl(${(place * 137.508) % 360} 65% ${dark.matches ? 64 : 42}%)`;
  }
  function look(entry) {
    const readout = group.readouts.indexOf(entry.readout);
    const one = group.labels.length === 1;
    const color = one ? colorOf(readout, group.readouts.length, []) : colorOf(entry.color, group.labels.length, group.colors);
    return { color, dash: readout % DASHES.length };
  }
  let entries = []; // of the part and the filter
  function select() {
    current();
    const { problems, passes } = parsedFilter();
    entries = group.all.filter((entry) => entry.panel === state.panel && passes(entry));
    get("problem").textContent = problems.length ? `Filter: ${problems.join("; ")}.` : entries.length ? "" : "No run passes the filter.";
  }
  const visible = () => {
    const hidden = new Set(state.hidden), readouts = new Set(state.hiddenReadouts);
    return entries.filter((entry) => !hidden.has(entry.label) && !readouts.has(entry.readout));
  };
  function smoothed(values, width) {
    if (width < 2) return values;
    return values.map((value, place) => {
      const some = values.slice(Math.max(place - width + 1, 0), place + 1).filter((each) => each !== null);
      return value === null || !some.length ? null : some.reduce((sum, each) => sum + each, 0) / some.length;
    });
  }
  let drawn = []; // {entry, curve, points}
  function linesOf(shownEntries) {
    const made = [];
    for (const entry of shownEntries) {
      const curve = curveOf(entry);
      const axis = state.x === "round" ? entry.run.rounds : entry.run.axes[state.x];
      if (!curve || !axis) continue;
      const factor = isShare(state.metric) ? 100 : 1;
      const at = curve.at ?? entry.run.rounds.map((_, place) => place);
      const mean = smoothed(curve.mean, state.smooth), std = curve.std && smoothed(curve.std, state.smooth);
      const { color, dash } = look(entry);
      const points = [];
      for (let i = 0; i < at.length; i++) {
        if (mean[i] === null || axis[at[i]] === null) continue;
        const y = factor * mean[i], spread = std && std[i] !== null ? factor * std[i] : 0;
        if (state.log && y - spread <= 0) continue;
        points.push({ c: made.length, x: axis[at[i]], y, lo: y - spread, hi: y + spread, r: entry.run.rounds[at[i]], color, dash });
      }
      if (points.length) made.push({ entry, curve, points });
    }
    const most = Math.max(Math.floor(DRAWN / Math.max(made.length, 1)), 8);
    for (const line of made) line.points = thinned(line.points, most);
    return made;
  }
  // The rule of viewer/thinning.py: first, last, lowest and highest of equal spans of rounds.
  function thinned(points, most) {
    if (points.length <= most) return points;
    const spans = Math.floor((most - 2) / 2), first = points[0].r, length = points.at(-1).r - first;
    const lowest = new Array(spans), highest = new Array(spans);
    points.forEach((point, place) => {
      const span = Math.min(Math.floor(((point.r - first) / length) * spans), spans - 1);
      if (lowest[span] === undefined || point.y < points[lowest[span]].y) lowest[span] = place;
      if (highest[span] === undefined || point.y >= points[highest[span]].y) highest[span] = place;
    });
    const kept = new Set([0, points.length - 1, ...lowest, ...highest]);
    return points.filter((_, place) => kept.has(place));
  }
  function theme() {
    const soft = style("--soft"), line = style("--line"), color = style("--text");
    const axis = { labelColor: soft, titleColor: color, gridColor: line, domainColor: line, tickColor: line, labelFontSize: 12, titleFontSize: 12.5, titleFontWeight: "normal" };
    return { font: "system-ui, DejaVu Sans, sans-serif", background: null, axis, view: { stroke: null }, legend: { labelColor: soft, titleColor: color },
      header: { labelColor: color, titleColor: color }, title: { color } };
  }
  function domain(values, least) {
    let low = Infinity, high = -Infinity;
    for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
    if (low > high) return [0, 1];
    const more = Math.max(least - (high - low), 0) / 2 || (high === low ? Math.abs(high) * 0.05 || 0.5 : 0);
    return [low - more, high + more];
  }
  function* each(field) { for (const line of drawn) for (const point of line.points) yield point[field]; }
  function curveSpec(width, height, bands) {
    const few = drawn.length <= 40;
    const y = { scale: { domain: state.log ? domain(each("y"), 0) : domain(each("y"), isShare(state.metric) ? 2 : 0), type: state.log ? "log" : "linear", nice: !state.log, zero: false }, type: "quantitative" };
    const x = { field: "x", type: "quantitative", scale: { domain: domain(each("x"), 0), nice: false, zero: false }, title: data.axes[state.x] };
    const color = { field: "color", type: "nominal", scale: null };
    const strokeDash = { field: "dash", type: "nominal", scale: { domain: DASHES.map((_, place) => place), range: DASHES }, legend: null };
    const common = { x, detail: { field: "c" }, color, order: { value: null } };
    const line = { ...common, y: { ...y, field: "y", title: heading(state.metric) }, strokeDash };
    const zoom = { name: "zoom", select: { type: "interval", zoom: "wheel![event.shiftKey]" }, bind: "scales" };
    return {
      width, height, autosize: { type: "fit", contains: "padding" }, padding: 4, config: theme(),
      layer: [
        ...(bands ? [{ data: { name: "bands" }, mark: { type: "area", opacity: 0.15, clip: true }, encoding: { ...common, y: { ...y, field: "lo", title: heading(state.metric) }, y2: { field: "hi" } } }] : []),
        { data: { name: "points" }, params: [zoom], mark: { type: "line", clip: true, strokeWidth: few ? 1.8 : 1, opacity: few ? 1 : 0.7 }, encoding: line },
        { data: { name: "hover" }, mark: { type: "line", clip: true, strokeWidth: 4 }, encoding: line },
      ],
      datasets: { points: [], ...(bands ? { bands: [] } : {}), hover: [] },
    };
  }
  let view = null, working = Promise.resolve();
  async function show(target, spec, values, old) {
    old?.finalize();
    const { view: made } = await vegaEmbed(target, spec, { mode: "vega-lite", actions: false, renderer: "canvas", hover: false, tooltip: false, defaultStyle: false });
    for (const [name, rows] of Object.entries(values)) made.data(name, rows);
    return made.runAsync();
  }
  function drawCurves() {
    working = working.then(async () => {
      drawn = linesOf(visible());
      hovered = -1;
      get("dot").hidden = get("tip").hidden = true;
      if (!drawn.length) {
        view?.finalize();
        view = null;
        const none = entries.length ? `No shown curve has ${heading(state.metric)} over ${data.axes[state.x]}.` : "";
        get("chart").replaceChildren(element("p", { className: "hint" }, none));
        return;
      }
      const evaluations = drawn.some((line) => line.points.length < line.curve.evaluations);
      get("thinned").textContent = evaluations ? `Of curves with many evaluations it shows the first, the last, and the lowest and highest of equal spans of rounds, at most ${Math.max(...drawn.map((line) => line.points.length))}; fewer curves show more.` : "";
      const narrow = innerWidth < 821;
      const width = get("chart-frame").clientWidth, height = narrow ? 300 : 420;
      const bands = state.band && drawn.length <= BANDS ? drawn.filter((line) => line.curve.std).flatMap((line) => line.points) : [];
      const points = drawn.flatMap((line) => line.points);
      view = await show(get("chart"), curveSpec(width, height, bands.length > 0), bands.length ? { points, bands } : { points }, view);
    }).catch(report);
  }
  function report(error) {
    get("problem").textContent = `This page failed: ${error.message}`;
    console.error(error);
  }

  // ---------------------------------------------------------------- numbers under the pointer

  let hovered = -1;
  function nearest(event) {
    const frame = get("chart").querySelector("canvas").getBoundingClientRect();
    const [left, top] = view.origin();
    const mouseX = event.clientX - frame.left - left, mouseY = event.clientY - frame.top - top;
    if (mouseX < -5 || mouseY < -5 || mouseX > view.width() + 5 || mouseY > view.height() + 5) return null;
    const scaleX = view.scale("x"), scaleY = view.scale("y");
    let best = null, least = 1600; // within 40 pixels
    for (let number = 0; number < drawn.length; number++) {
      for (const point of drawn[number].points) {
        const byX = scaleX(point.x) - mouseX;
        if (byX > 40 || byX < -40) continue;
        const byY = scaleY(point.y) - mouseY, distance = byX * byX + byY * byY;
        if (distance < least) { least = distance; best = { number, point, left: frame.left - get("chart-frame").getBoundingClientRect().left + left + byX + mouseX, top: top + byY + mouseY }; }
      }
    }
    return best;
  }
  function highlight(number) {
    if (number === hovered || !view) return;
    hovered = number;
    view.data("hover", number < 0 ? [] : drawn[number].points);
    view.runAsync();
  }
  function hover(event) {
    if (!view || !drawn.length) return;
    const found = nearest(event), dot = get("dot"), tip = get("tip");
    dot.hidden = tip.hidden = !found;
    highlight(found ? found.number : -1);
    if (!found) return;
    const { entry, curve } = drawn[found.number], point = found.point, unit = isShare(state.metric) ? " %" : "";
    const digits = (value) => (unit ? value.toFixed(2) : short(value));
    const deviation = curve.std ? ` ± ${digits((point.hi - point.lo) / 2)}${unit}, ${curve.seeds} seeds` : "";
    const place = state.x === "round" ? "" : `\n${data.axes[state.x]}: ${short(point.x)}`;
    tip.textContent = `${entry.label}\n${entry.readout}, round ${point.r}${place}\n${state.metric}: ${digits(point.y)}${unit}${deviation}`;
    dot.style.left = `${found.left}px`;
    dot.style.top = `${found.top}px`;
    dot.style.background = point.color;
    const room = get("chart-frame").clientWidth;
    tip.style.left = `${Math.min(found.left + 12, Math.max(room - tip.offsetWidth - 4, 0))}px`;
    tip.style.top = `${found.top + 14 + tip.offsetHeight > get("chart-frame").clientHeight ? Math.max(found.top - tip.offsetHeight - 12, 0) : found.top + 14}px`;
  }
  let waiting = null;
  get("chart-frame").addEventListener("mousemove", (event) => {
    if (!waiting) requestAnimationFrame(() => { hover(waiting); waiting = null; });
    waiting = event;
  });
  get("chart-frame").addEventListener("mouseleave", () => { get("dot").hidden = get("tip").hidden = true; highlight(-1); });

  // ---------------------------------------------------------------- legend

  function toggled(list, name) { return list.includes(name) ? list.filter((each) => each !== name) : [...list, name]; }
  function drawLegend() {
    const readouts = [...new Set(entries.map((entry) => entry.readout))];
    get("readouts").replaceChildren(...(readouts.length < 2 ? [] : readouts).map((readout) => element("button", {
      type: "button", "aria-pressed": String(!state.hiddenReadouts.includes(readout)),
      onclick: () => { state.hiddenReadouts = toggled(state.hiddenReadouts, readout); changedLegend(); },
    }, element("span", { className: "name" }, readout))));
    const first = new Map();
    for (const entry of entries) if (!first.has(entry.label)) first.set(entry.label, entry);
    const one = group.labels.length === 1;
    get("labels").replaceChildren(...[...first].map(([label, entry]) => {
      const swatch = element("i");
      swatch.style.background = one ? "var(--soft)" : look(entry).color;
      const mark = () => drawn.findIndex((line) => line.entry.label === label);
      return element("li", {}, element("button", {
        type: "button", title: label, "aria-pressed": String(!state.hidden.includes(label)),
        onclick: () => { state.hidden = toggled(state.hidden, label); changedLegend(); },
        ondblclick: () => { state.hidden = [...first.keys()].filter((each) => each !== label); changedLegend(); },
        onmouseenter: () => highlight(mark()), onmouseleave: () => highlight(-1),
      }, swatch, element("span", { className: "name" }, label)));
    }));
  }
  // Presses buttons in place: a second click, of a double-click, must meet the same element.
  function changedLegend() {
    for (const button of get("labels").querySelectorAll("button")) button.setAttribute("aria-pressed", String(!state.hidden.includes(button.title)));
    for (const button of get("readouts").children) button.setAttribute("aria-pressed", String(!state.hiddenReadouts.includes(button.textContent)));
    save();
    drawCurves();
    drawClients();
  }

  // ---------------------------------------------------------------- table

  function columns() {
    const others = group.metrics.filter((metric) => metric !== state.metric && entries.some((entry) => curveOf(entry, metric))).slice(0, 3);
    const best = lower(state.metric) ? "lowest" : "highest";
    const number = (title, value, metric = "") => ({ title, value, number: true, text: (cell) => (metric ? shown(metric, cell) : short(cell)) });
    const plain = (title, value) => ({ title, value, number: false, text });
    const sizes = [["megabytes", "MB"], ["seconds", "seconds"], ["simulated_seconds", "simulated s"]];
    return [
      plain("run", (entry) => entry.label),
      plain("read-out", (entry) => entry.readout),
      number(heading(state.metric), (entry) => curveOf(entry)?.final?.mean, state.metric),
      ...(entries.some((entry) => curveOf(entry)?.std) ? [number("± std", (entry) => curveOf(entry)?.final?.std, state.metric)] : []),
      number("last", (entry) => curveOf(entry)?.last, state.metric),
      number("best", (entry) => curveOf(entry)?.[best]?.[0], state.metric),
      number("in round", (entry) => curveOf(entry)?.[best]?.[1]),
      ...others.map((metric) => number(heading(metric), (entry) => curveOf(entry, metric)?.final?.mean, metric)),
      { ...number("seeds", (entry) => entry.run.numbers.seeds.length) },
      { ...number("round", (entry) => entry.run.numbers.round), text: String, of: (entry) => `${entry.run.numbers.round} of ${entry.run.numbers.num_rounds}` },
      plain("state", (entry) => entry.run.state),
      ...sizes.filter(([name]) => entries.some((entry) => name in entry.run.numbers)).map(([name, title]) => number(title, (entry) => entry.run.numbers[name])),
      ...differing().slice(0, FIELDS).map((name) => {
        const numeric = group.runs.every((run) => ["number", "object"].includes(typeof valueOf(run, name)) && !Array.isArray(valueOf(run, name)));
        return { ...plain(name, (entry) => valueOf(entry.run, name)), number: numeric };
      }),
    ];
  }
  function sortedRows(all) {
    const column = all.find((each) => each.title === state.sort);
    if (!column) return entries;
    const key = (entry) => column.value(entry) ?? null;
    const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : text(a).localeCompare(text(b), undefined, { numeric: true }));
    return [...entries].sort((a, b) => {
      const [first, second] = [key(a), key(b)];
      if (first === null || second === null) return (first === null) - (second === null);
      return (state.down ? -1 : 1) * compare(first, second);
    });
  }
  let limit = ROWS;
  function drawTable() {
    const all = columns(), rows = sortedRows(all);
    const sort = (column) => { state.down = state.sort === column.title ? !state.down : column.number && !lower(column.title); state.sort = column.title; save(); drawTable(); };
    const head = element("tr", {}, ...all.map((column) => element("th", {
      className: column.number ? "number" : "", tabIndex: 0, scope: "col", onclick: () => sort(column),
      onkeydown: (event) => { if (event.key === "Enter") sort(column); },
      "aria-sort": state.sort === column.title ? (state.down ? "descending" : "ascending") : "none",
    }, column.title + (state.sort === column.title ? (state.down ? " ▾" : " ▴") : ""))));
    const body = rows.slice(0, limit).map((entry) => element("tr", { className: entry.run.name === state.run ? "chosen" : "" }, ...all.map((column, place) => {
      const value = column.value(entry);
      const cell = element("td", { className: column.number ? "number" : "", title: text(value) });
      const content = column.of ? column.of(entry) : column.text(value);
      cell.append(place ? content : element("button", { type: "button", className: "link", onclick: () => openRun(entry.run.name) }, content));
      return cell;
    })));
    get("table").replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
    get("count").textContent = `${rows.length} of ${group.all.filter((entry) => entry.panel === state.panel).length} rows. Means over the last rounds of all evaluations; last: newest evaluation. Click a run for its configuration.`;
    get("more").hidden = rows.length <= limit;
    get("more").textContent = `Show all ${rows.length} rows`;
  }
  function download() {
    const all = columns(), quoted = (value) => (/[",\n]/.test(text(value)) ? `"${text(value).replaceAll('"', '""')}"` : text(value));
    const rows = [all.map((column) => column.title), ...sortedRows(all).map((entry) => all.map((column) => column.value(entry)))];
    const url = URL.createObjectURL(new Blob([rows.map((row) => row.map(quoted).join(",")).join("\n") + "\n"], { type: "text/csv" }));
    element("a", { href: url, download: "table.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  // ---------------------------------------------------------------- printed numbers of a paper

  function drawPrinted() {
    get("printed-section").hidden = !group.numbers.length;
    get("claims").hidden = !group.claims.length;
    const words = group.claims.map(([, verdict]) => verdict.split(":")[0]);
    const counts = [...new Set(words)].map((word) => `${words.filter((each) => each === word).length} ${word}`);
    get("claims").children[0].textContent = `Claims: ${counts.join(", ")}`;
    get("claims").children[1].replaceChildren(...group.claims.map(([claim, verdict]) => element("p", {}, `${claim}: `, element("span", { className: "verdict" }, verdict))));
    const several = group.numbers.some((row) => row[1]), printed = group.numbers.some((row) => row[2] !== null);
    const head = ["", ...(several ? ["of"] : []), ...(printed ? ["printed"] : []), "ours", "± std", "seeds", "unit"];
    const body = group.numbers.map(([row, panel, paper, mean, std, seeds, unit]) => element("tr", {},
      element("td", {}, row), ...(several ? [element("td", {}, panel)] : []), ...(printed ? [element("td", { className: "number" }, paper ?? "")] : []),
      ...[mean, std].map((value) => element("td", { className: "number", title: text(value) }, short(value))),
      element("td", { className: "number" }, seeds), element("td", {}, unit)));
    get("printed").replaceChildren(element("thead", {}, element("tr", {}, ...head.map((title) => element("th", {}, title)))), element("tbody", {}, ...body));
  }

  // ---------------------------------------------------------------- one run

  function openRun(name) {
    state.run = state.run === name ? "" : name;
    save();
    drawTable();
    drawRun();
    if (state.run) get("run-section").scrollIntoView({ behavior: "smooth", block: "nearest" });
  }
  function drawRun() {
    const run = byName.get(state.run);
    get("run-section").hidden = !run;
    if (!run) return;
    get("run-name").textContent = run.name;
    get("command").textContent = run.command || "The command is not known.";
    get("copy").hidden = !run.command;
    const numbers = { seeds: run.numbers.seeds.join(", "), rounds: `${run.numbers.round} of ${run.numbers.num_rounds}`, state: run.state };
    if ("seconds" in run.numbers) numbers["seconds of training"] = short(run.numbers.seconds);
    const facts = { ...numbers, ...run.facts };
    get("facts").replaceChildren(...Object.entries(facts).map(([title, value]) => element("tr", {}, element("th", { scope: "row" }, title), element("td", {}, value))));
    const names = group.runs.map((each) => each.name).filter((name) => name !== run.name);
    const other = byName.get(choose(get("other"), ["", ...names], state.other, (name) => name || "the defaults"));
    const fields = Object.keys(data.defaults).concat(Object.keys(run.config).filter((name) => !(name in data.defaults)));
    const rows = fields.map((name) => [name, valueOf({ config: run.config, parameters: {} }, name), other ? valueOf({ config: other.config, parameters: {} }, name) : data.defaults[name] ?? null]);
    const differs = ([, own, others]) => JSON.stringify(own) !== JSON.stringify(others);
    const kept = rows.filter((row) => state.every || differs(row));
    const head = element("tr", {}, ...["field", "this run", other ? other.name : "default"].map((title) => element("th", {}, title)));
    const body = kept.map((row) => element("tr", { className: state.every && differs(row) ? "differs" : "" }, ...row.map((value) => element("td", {}, text(value)))));
    get("config").replaceChildren(element("thead", {}, head), element("tbody", {}, ...(body.length ? body : [element("tr", {}, element("td", { colSpan: 3 }, "No field differs."))])));
  }
  async function copy() {
    const command = byName.get(state.run)?.command ?? "";
    try {
      await navigator.clipboard.writeText(command);
      get("copy").textContent = "Copied";
    } catch (error) {
      getSelection().selectAllChildren(get("command"));
      get("copy").textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl-C to copy";
    }
    setTimeout(() => { get("copy").textContent = "Copy command"; }, 1500);
  }

  // ---------------------------------------------------------------- sweep

  let map = null;
  function drawMap() {
    const fields = differing();
    const several = group.heading === "folders" && fields.length > 0 && group.runs.length > 1;
    get("map-section").hidden = !several;
    if (!several) return;
    const numeric = (name) => group.runs.every((run) => typeof valueOf(run, name) === "number");
    const rank = (name) => (name === "num_rounds" ? 2 : numeric(name) ? 0 : 1);
    const ordered = [...fields].sort((a, b) => rank(a) - rank(b));
    const x = choose(get("map-x"), ordered, state.mapX || ordered[0]);
    const y = choose(get("map-y"), ["", ...ordered.filter((name) => name !== x)], state.mapY || (ordered.find((name) => name !== x) ?? ""), (name) => name || "nothing");
    const readout = choose(get("map-readout"), group.readouts, state.mapReadout || group.readouts[0]);
    const cells = new Map();
    for (const entry of entries) {
      const value = scoreOf(entry);
      if (entry.readout !== readout || value === null || value === undefined) continue;
      const place = [text(valueOf(entry.run, x)), y ? text(valueOf(entry.run, y)) : ""];
      const key = JSON.stringify(place);
      cells.set(key, { x: place[0], y: place[1], values: [...(cells.get(key)?.values ?? []), scaled(state.metric, value)] });
    }
    const least = (values) => (lower(state.metric) ? Math.min(...values) : Math.max(...values));
    const mean = (values) => values.reduce((sum, each) => sum + each, 0) / values.length;
    const rows = [...cells.values()].map((cell) => ({ x: cell.x, y: cell.y, v: state.mapOf === "mean" ? mean(cell.values) : least(cell.values), runs: cell.values.length }));
    const [low, high] = domain(rows.map((row) => row.v), 0);
    for (const row of rows) { row.t = isShare(state.metric) ? row.v.toFixed(1) : short(row.v); row.light = (row.v - low) / (high - low) > 0.6 !== lower(state.metric); }
    const order = (values) => [...new Set(values)].sort((a, b) => (Number(a) - Number(b)) || a.localeCompare(b));
    get("map").hidden = rows.length < 2;
    const xs = order(rows.map((row) => row.x)), ys = order(rows.map((row) => row.y)).reverse();
    const axis = (title) => ({ title, labelLimit: 220, labelAngle: 0 });
    const angle = xs.some((name) => name.length > 8) ? -35 : 0;
    const spec = {
      width: { step: 64 }, height: { step: 34 }, config: theme(), data: { values: rows },
      encoding: { x: { field: "x", type: "ordinal", sort: xs, axis: { ...axis(x), labelAngle: angle } }, y: { field: "y", type: "ordinal", sort: ys, axis: y ? axis(y) : null } },
      layer: [
        { mark: { type: "rect" }, encoding: { color: { field: "v", type: "quantitative", title: heading(state.metric), scale: { scheme: "viridis", reverse: lower(state.metric), domain: [low, high], zero: false } } } },
        { mark: { type: "text", fontSize: 12 }, encoding: { text: { field: "t" }, color: { condition: { test: "datum.light", value: "#111111" }, value: "#ffffff" } } },
      ],
    };
    working = working.then(async () => { map = await show(get("map"), spec, {}, map); }).catch(report);
  }

  // ---------------------------------------------------------------- clients

  let histograms = null;
  function drawClients() {
    const base = (name) => name.split(".")[0];
    const chosen = [...new Map(visible().map((entry) => [entry.run, entry])).values()].flatMap((entry) => entry.run.histograms
      .filter((histogram) => histogram.metric === state.metric && !state.hiddenReadouts.includes(base(histogram.readout)))
      .map((histogram) => ({ ...histogram, title: `${entry.label}: ${histogram.readout}${histogram.seen ? "" : ", unseen clients"}`, color: look({ ...entry, readout: base(histogram.readout) }).color })));
    get("clients-section").hidden = !chosen.length;
    if (!chosen.length) return;
    const first = chosen.slice(0, 12);
    get("clients-note").textContent = `Clients' own examples at the newest evaluation, all seeds together${chosen.length > 12 ? `; the first 12 of ${chosen.length} histograms` : ""}.`;
    const factor = isShare(state.metric) ? 100 : 1;
    const rows = first.flatMap((histogram) => histogram.counts.map((count, place) => {
      const width = (histogram.edges[1] - histogram.edges[0]) / histogram.counts.length;
      return { title: histogram.title, color: histogram.color, lo: factor * (histogram.edges[0] + place * width), hi: factor * (histogram.edges[0] + (place + 1) * width), share: (100 * count) / histogram.clients };
    }));
    const wide = Math.max(1, Math.min(first.length, Math.floor((get("curves").clientWidth - 20) / 330)));
    const spec = {
      config: theme(), data: { values: rows }, columns: wide,
      facet: { field: "title", type: "nominal", title: null, sort: null, header: { labelLimit: 250 } },
      spec: { width: 240, height: 110, mark: { type: "bar" }, encoding: {
        x: { field: "lo", type: "quantitative", bin: { binned: true }, title: heading(state.metric).replace(/^test /, "") }, x2: { field: "hi" },
        y: { field: "share", type: "quantitative", title: "clients (%)" }, color: { field: "color", type: "nominal", scale: null } } },
    };
    working = working.then(async () => { histograms = await show(get("clients"), spec, {}, histograms); }).catch(report);
    const head = ["", "clients", "mean", lower(state.metric) ? "90th percentile" : "10th percentile"];
    get("clients-table").replaceChildren(element("thead", {}, element("tr", {}, ...head.map((title) => element("th", {}, title)))), element("tbody", {}, ...chosen.map((each) => element("tr", {},
      element("td", {}, each.title), ...[each.clients, each.mean, each.worst].map((value, place) => element("td", { className: "number", title: text(value) }, place ? shown(state.metric, value) : value))))));
  }

  // ---------------------------------------------------------------- the page

  function drawControls() {
    current();
    const headings = [...new Set(data.groups.map((each) => each.heading))];
    get("group").replaceChildren(...headings.map((name) => element("optgroup", { label: name }, ...data.groups.filter((each) => each.heading === name)
      .map((each) => element("option", { value: each.name, selected: each === group }, each.name)))));
    state.panel = choose(get("panel"), group.panels, state.panel);
    get("panel-label").hidden = group.panels.length < 2;
    const metrics = group.metrics.length ? group.metrics : ["accuracy"];
    state.metric = choose(get("metric"), metrics, metrics.includes(state.metric) ? state.metric : "accuracy");
    state.x = choose(get("x"), group.axes, state.x, (axis) => data.axes[axis]);
    get("filter").value = state.filter;
    get("smooth").value = state.smooth;
    get("smooth-text").textContent = state.smooth > 1 ? `${state.smooth} points` : "off";
    for (const name of ["band", "log", "every"]) get(name).checked = state[name];
    get("map-of").value = state.mapOf;
    get("note").textContent = group.note;
  }
  function draw() {
    drawControls();
    select();
    drawLegend();
    drawCurves();
    drawTable();
    drawPrinted();
    drawRun();
    drawMap();
    drawClients();
    save();
  }
  const on = (id, kind, action) => get(id).addEventListener(kind, action);
  on("group", "change", () => { Object.assign(state, { group: get("group").value, panel: "", hidden: [], hiddenReadouts: [], mapX: "", mapY: "", mapReadout: "", other: "" }); limit = ROWS; draw(); });
  on("panel", "change", () => { state.panel = get("panel").value; draw(); });
  let typing = 0;
  on("filter", "input", () => { clearTimeout(typing); typing = setTimeout(() => { state.filter = get("filter").value; draw(); }, 150); });
  for (const name of ["metric", "x"]) on(name, "change", () => { state[name] = get(name).value; draw(); });
  on("smooth", "input", () => { state.smooth = Number(get("smooth").value); get("smooth-text").textContent = state.smooth > 1 ? `${state.smooth} points` : "off"; drawCurves(); save(); });
  for (const name of ["band", "log"]) on(name, "change", () => { state[name] = get(name).checked; drawCurves(); save(); });
  on("reset", "click", drawCurves);
  on("all", "click", () => { state.hidden = []; state.hiddenReadouts = []; changedLegend(); });
  on("none", "click", () => { state.hidden = [...new Set(entries.map((entry) => entry.label))]; changedLegend(); });
  on("csv", "click", download);
  on("more", "click", () => { limit = Infinity; drawTable(); });
  on("copy", "click", copy);
  on("close", "click", () => openRun(state.run));
  on("other", "change", () => { state.other = get("other").value; save(); drawRun(); });
  on("every", "change", () => { state.every = get("every").checked; save(); drawRun(); });
  for (const [id, name] of [["map-x", "mapX"], ["map-y", "mapY"], ["map-readout", "mapReadout"], ["map-of", "mapOf"]]) on(id, "change", () => { state[name] = get(id).value; save(); drawMap(); });
  dark.addEventListener("change", draw);
  let resizing = 0, width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; clearTimeout(resizing); resizing = setTimeout(draw, 120); } });

  get("made").textContent = `fedwin ${data.version}, ${data.runs.length} run${data.runs.length === 1 ? "" : "s"}, written ${data.made}`;
  get("left-section").hidden = !data.left_out.length;
  get("left").replaceChildren(...data.left_out.map((reason) => element("li", {}, reason)));
  if (data.reload) {
    const box = element("input", { type: "checkbox", checked: state.reload, onchange: () => { state.reload = box.checked; save(); } });
    get("made").append(" ", element("label", {}, box, `load again every ${data.reload} s`));
    try { scrollTo(0, Number(sessionStorage.getItem("scroll")) || 0); } catch (error) { /* no storage */ }
    setInterval(() => {
      if (!state.reload) return;
      try { sessionStorage.setItem("scroll", scrollY); } catch (error) { /* no storage */ }
      location.reload();
    }, 1000 * data.reload);
  }
  draw();
  await working;
  // For tests and programs: the data, what is shown, and when the page was ready.
  window.fedwin = { data, state, shown: () => drawn.map((line) => [line.entry.label, line.entry.readout, line.points.length]), done: () => working, view: () => view };
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
