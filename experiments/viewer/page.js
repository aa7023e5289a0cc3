"use strict";
// The viewer's page. Texts of runs reach the document as text nodes only, and the charts as data only.
(async () => {
  const get = (id) => document.getElementById(id);
  const packed = Uint8Array.from(atob(get("data").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const data = await new Response(stream).json();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const text = (value) => (value === null || value === undefined ? "" : String(value));
  for (const run of data.runs) run.settings = { ...data.defaults, ...run.settings };

  // The controls are the state of the page; the address keeps those that were changed.
  const state = {};
  try {
    Object.assign(state, JSON.parse(decodeURIComponent(location.hash.slice(1)) || "{}"));
  } catch (error) { /* not an address of this page */ }
  function choose(id, options, titles = {}) {
    const wanted = options.includes(state[id]) ? state[id] : options[0];
    get(id).replaceChildren(...options.map((each) => new Option(titles[each] ?? each, each, false, each === wanted)));
    get(id).parentElement.hidden = options.length < 2;
    return wanted;
  }
  function fill(id, rows) {
    get(id).replaceChildren();
    for (const [number, cells] of rows.entries()) {
      const row = get(id).insertRow();
      for (const cell of cells) {
        const place = row.appendChild(document.createElement(number ? "td" : "th"));
        place.textContent = typeof cell === "number" ? String(Number(cell.toPrecision(5))) : text(cell);
        place.title = text(cell);
        place.className = typeof cell === "number" ? "number" : "";
      }
    }
  }
  async function embed(id, spec, rows) {
    const theme = Number(dark.matches);
    const shown = { ...spec, config: data.charts.themes[theme], datasets: { [spec.data.name]: rows } };
    get(id).view?.finalize();
    get(id).replaceChildren();
    if (!rows.length) return;
    const options = { actions: false, logLevel: 1, renderer: "canvas", tooltip: { theme: ["light", "dark"][theme] } };
    get(id).view = (await vegaEmbed(get(id), shown, options)).view;
  }

  const curveOf = ({ run, readout }, metric) => (
    run.curves.find((curve) => curve.readout === readout && curve.metric === metric));
  // Words that occur, and conditions: client_lr=0.1, algorithm=fedprox, partition.alpha<0.5, accuracy>60.
  function passes(entry, word) {
    const [, name, sign, wanted] = word.match(/^([a-z_][\w.]*)(!=|>=|<=|=|>|<)(.+)$/) ?? [];
    if (!sign) return JSON.stringify([entry.label, entry.readout, entry.run.settings]).toLowerCase().includes(word);
    const own = { mb: entry.run.settings.MB, ...entry.run.settings, readout: entry.readout }, number = Number(wanted);
    const value = own[name] ?? curveOf(entry, name)?.score;
    const known = [value].flat().map((each) => text(each).toLowerCase());
    const equal = value === number || known.some((each) => each === wanted || each.startsWith(`${wanted}:`));
    if (sign === "!=") return !equal;
    if (sign.endsWith("=") && equal) return true;
    return typeof value === "number" && (sign[0] === ">" ? value > number : sign[0] === "<" && value < number);
  }

  function drawCurves(group, entries, metric, x) {
    const spec = structuredClone(data.charts.curves), log = get("log").checked;
    spec.transform.find((each) => each.window).frame = [1 - get("smooth").value, 0];
    if (log) spec.transform.push({ filter: "datum.lo > 0" });
    [spec.encoding.x.title, spec.height] = [data.axes[x], Math.max(420, 14 * Math.min(group.names.length, 40) + 150)];
    spec.encoding.color.scale = { domain: group.names, range: group.colors[Number(dark.matches)] };
    for (const { encoding } of [spec, spec.layer[0]]) encoding.y.title = data.metrics[metric]?.label;
    spec.encoding.y.scale = log ? { type: "log" } : { zero: false };
    if (entries.length > 100) spec.layer = [spec.layer[1]]; // without bands and numbers under the pointer
    else if (!get("band").checked) spec.layer.shift();
    const curves = entries.map((entry) => ({ ...curveOf(entry, metric), name: entry[group.color] }));
    const rows = curves.filter((curve) => curve.axes?.[x]).map(({ name, readout, axes, mean, std }, c) => (
      { c, name, readout, x: axes[x], y: mean, std: std ?? [], round: axes.round }));
    return embed("curves", spec, rows);
  }
  function drawMap(group, entries, metric) {
    const x = choose("map-x", group.grid), y = choose("map-y", group.grid.filter((field) => field !== x));
    const readout = choose("map-readout", group.readouts);
    if (get("map-section").hidden = !x) return null;
    const { label, lower } = data.metrics[metric] ?? {};
    const chart = JSON.stringify(data.charts.map), spec = JSON.parse(lower ? chart.replaceAll("max", "min") : chart);
    spec.layer[0].encoding.color.scale.reverse = Boolean(lower);
    [spec.encoding.x.title, spec.encoding.y.title] = [x, y ?? ""];
    spec.layer[0].encoding.color.title = `best ${label}`;
    const swept = entries.filter((entry) => entry.readout === readout && entry.run.grid.length);
    return embed("map", spec, swept.map((entry) => (
      { x: text(entry.run.settings[x]), y: text(entry.run.settings[y]), v: curveOf(entry, metric)?.score })));
  }
  function drawClients(entries, metric) {
    const runs = [...new Set(entries.map((entry) => entry.run))];
    const bins = runs.flatMap((run) => run.histograms.filter((bin) => bin.metric === metric));
    get("clients-section").hidden = !bins.length;
    return embed("clients", data.charts.clients, bins);
  }
  function drawRun(group) {
    const run = data.runs.find((each) => each.name === choose("run", ["", ...group.runs]));
    if (get("details").hidden = !run) return;
    get("command").textContent = run.command;
    fill("facts", [["provenance", ""], ...Object.entries(run.facts)]);
    const rows = Object.entries(data.defaults).map(([field, usual]) => [field, run.settings[field], usual]);
    fill("config", [["field", "this run", "default"], ...rows.filter(([, own, usual]) => text(own) !== text(usual))]);
  }

  let drawn = [], drawing = Promise.resolve();
  async function draw() {
    const group = data.groups.find((each) => [each.name, each.heading].includes(state.group)) ?? data.groups[0];
    state.group = group.name;
    choose("group", data.groups.map((each) => each.name));
    const panel = choose("panel", group.panels), x = choose("x", group.axes, data.axes);
    const metric = choose("metric", Object.keys(group.tables)), { head, rows } = group.tables[metric];
    const all = group.entries.map((entry, place) => ({ ...entry, run: data.runs[entry.run], row: rows[place] }))
      .filter((entry) => entry.panel === panel);
    const words = get("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    drawn = all.filter((entry) => words.every((word) => passes(entry, word)));
    const column = head.indexOf(state.sort), way = state.down ? -1 : 1;
    const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : text(a).localeCompare(text(b)));
    if (column >= 0) drawn.sort((a, b) => way * order(a.row[column], b.row[column]));
    fill("table", [head, ...drawn.map((entry) => entry.row)]);
    get("note").textContent = group.note;
    get("count").textContent = `${drawn.length} of ${all.length} rows`;
    get("numbers-section").hidden = !group.numbers.length;
    fill("numbers", [["", "of", "printed", "ours", "± std", "seeds", "unit"], ...group.numbers]);
    fill("claims", [["claim", "verdict"], ...group.claims]);
    drawRun(group);
    await Promise.all([drawCurves(group, drawn, metric, x), drawMap(group, drawn, metric), drawClients(drawn, metric)]);
  }
  function change(changes) {
    Object.assign(state, changes);
    history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state))}`);
    const failed = (error) => { get("problem").textContent = `This page failed: ${error.message}`; };
    drawing = drawing.then(draw).catch(failed);
  }
  for (const control of document.querySelectorAll("select, input")) {
    const value = control.type === "checkbox" ? "checked" : "value";
    control[value] = state[control.id] ?? control[value];
    control.addEventListener("change", () => change({ [control.id]: control[value] }));
  }
  get("table").addEventListener("click", ({ target }) => {
    const sort = target.textContent, row = target.parentElement.rowIndex;
    change(row ? { run: drawn[row - 1].run.name } : { sort, down: state.sort !== sort || !state.down });
  });
  dark.addEventListener("change", () => change({}));
  get("made").textContent = `fedwin ${data.version}, ${data.runs.length} runs, written ${data.made}`;
  get("left-section").hidden = !data.left_out.length;
  fill("left", [["run"], ...data.left_out.map((reason) => [reason])]);
  if (data.reload) setTimeout(() => location.reload(), 1000 * data.reload);
  change({});
  await drawing;
  window.fedwin = { data, shown: () => drawn.map((entry) => [entry.label, entry.readout]), done: () => drawing };
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
})();
