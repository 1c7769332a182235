// The page: which part of it is shown, its table of runs, and a page for each run. The address says all of it, so that it can be linked:
// #q=word&method=vdn&sort=6 is the overview, #run-ID a run, #run-ID&against=run-OTHER its configuration beside another's.

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const byId = (id) => document.getElementById(id);
const only = Object.keys(data.runs).length === 1 ? Object.keys(data.runs)[0] : null;

// Light and dark.

const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function kept(store, name, value) {
  try { // a browser may refuse to keep anything
    if (value === undefined) return store().getItem(name);
    store().setItem(name, value);
  } catch { /* then it is not kept */ }
  return null;
}

function showLook() {
  const chosen = kept(() => localStorage, "emc-look") ?? root.dataset.chosen;
  root.dataset.theme = chosen ?? (prefersDark.matches ? "dark" : "light");
  byId("look").textContent = root.dataset.theme === "dark" ? "Light look" : "Dark look";
}

byId("look").hidden = false;
byId("look").addEventListener("click", () => {
  root.dataset.chosen = root.dataset.theme === "dark" ? "light" : "dark";
  kept(() => localStorage, "emc-look", root.dataset.chosen);
  showLook();
});
prefersDark.addEventListener("change", showLook);
showLook();

// Results over runs.

for (const figure of document.querySelectorAll("[data-curves]")) curvesIn(figure, data.plots[figure.dataset.curves]);
for (const node of document.querySelectorAll("[data-of]")) {
  const [name, place] = node.dataset.of.split(".");
  coloured(node, data.plots[name].legend[place]);
}

// The table of all runs: a body of rows for each configuration, the first of which stands for all its runs.

const FILTERS = ["method", "task", "state"];
const table = byId("all");
const bodies = table ? [...table.tBodies] : [];
const words = new Map(bodies.flatMap((body) => [...body.rows]).map((row) => [row, `${row.textContent} ${row.title}`.toLowerCase()]));
const heads = table ? [...table.tHead.rows[0].cells] : [];
const opener = (body) => body.querySelector("[aria-expanded]");
const runsOf = (body) => (body.rows.length > 1 ? [...body.rows].slice(1) : [...body.rows]);

/** Show the rows that fit the fields above the table. */
function applyFilters() {
  const wanted = byId("q").value.toLowerCase().split(/\s+/).filter(Boolean);
  const chosen = FILTERS.map((name) => [name, byId(name).value]).filter(([, value]) => value);
  let shown = 0, all = 0;
  for (const body of bodies) {
    const shared = body.rows[0].textContent.toLowerCase(), said = (row) => `${shared} ${words.get(row)}`;
    const fits = (row) =>
      chosen.every(([name, value]) => (name === "state" ? row : body).dataset[name] === value) && wanted.every((word) => said(row).includes(word));
    const fitting = new Set(runsOf(body).filter(fits));
    const open = opener(body)?.getAttribute("aria-expanded") === "true";
    for (const row of runsOf(body)) if (row.classList.contains("one")) row.hidden = !open || !fitting.has(row);
    body.hidden = !fitting.size;
    shown += fitting.size;
    all += runsOf(body).length;
  }
  byId("shown").textContent = shown === all ? `${all} runs` : `${shown} of ${all} runs`;
  byId("clear").hidden = !wanted.length && !chosen.length;
}

/** Sort by one column; what has no value comes last. */
function sortBy(column, down) {
  heads.forEach((head, i) => head.setAttribute("aria-sort", i !== column ? "none" : down ? "descending" : "ascending"));
  const by = new Map(bodies.map((body) => [body, body.rows[0].cells[column].dataset.by]));
  const numbers = [...by.values()].every((value) => value === "" || Number.isFinite(Number(value)));
  const compare = numbers ? (a, b) => Number(a) - Number(b) : (a, b) => a.localeCompare(b, "en", { numeric: true });
  bodies.sort((a, b) => (by.get(a) === "") - (by.get(b) === "") || (down ? -1 : 1) * compare(by.get(a), by.get(b)));
  table.append(...bodies);
}

/** Write the state of the table into the address. */
function keepState() {
  const state = new URLSearchParams();
  for (const name of ["q", ...FILTERS]) if (byId(name).value) state.set(name, byId(name).value);
  const sorted = heads.findIndex((head) => head.ariaSort !== "none");
  if (sorted >= 0) state.set("sort", `${heads[sorted].ariaSort === "descending" ? "-" : ""}${sorted}`);
  history.replaceState(null, "", `#${state}`);
}

/** Read it from there. */
function restoreState(state) {
  for (const name of ["q", ...FILTERS]) byId(name).value = state.get(name) ?? "";
  const sorted = /^(-?)(\d{1,2})$/.exec(state.get("sort") ?? "");
  if (sorted && heads[sorted[2]]) sortBy(Number(sorted[2]), sorted[1] === "-");
  applyFilters();
}

if (table) {
  for (const name of ["q", ...FILTERS])
    byId(name).addEventListener("input", () => {
      applyFilters();
      keepState();
    });
  byId("clear").addEventListener("click", () => {
    for (const name of ["q", ...FILTERS]) byId(name).value = "";
    applyFilters();
    keepState();
    byId("q").focus();
  });
  heads.forEach((head, column) =>
    head.firstElementChild.addEventListener("click", () => {
      const keys = bodies.map((body) => body.rows[0].cells[column].dataset.by);
      const first = keys.some((key) => key !== "" && Number.isFinite(Number(key)));
      sortBy(column, head.ariaSort === "none" ? first : head.ariaSort === "ascending"); // numbers begin with the largest
      keepState();
    }),
  );
  for (const body of bodies)
    opener(body)?.addEventListener("click", () => {
      opener(body).setAttribute("aria-expanded", String(opener(body).getAttribute("aria-expanded") !== "true"));
      applyFilters();
    });
}

// A run's own page.

function section(title, ...content) {
  return [make("h3", {}, title), ...content];
}

function figure(caption, ...content) {
  return make("figure", {}, ...content, make("figcaption", {}, caption));
}

function tableOf(names, rows) {
  const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name)));
  const body = rows.map((cells) => {
    const [first, ...rest] = cells.map((cell) => (cell instanceof Node ? cell : document.createTextNode(cell)));
    return make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((cell) => make("td", {}, cell)));
  });
  return make("div", { class: "scroll", tabindex: "0" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)));
}

function thinned(lines, grids, most) {
  return lines.some((line) => grids[line.grid].length >= most) ? " Of long curves, evenly spaced points are shown." : "";
}

function scoresOf(run) {
  if (!run.score.length) return [];
  const unit = run.percent ? "win rate" : "mean return";
  const [line] = run.score, final = line.median.at(-1);
  const alt = `The ${unit} of ${run.name} over environment steps; at the end ${run.percent ? `${Math.round(100 * final)}%` : inWords(final)}.`;
  const several = line.low ? " Median over seeds, band 25–75%." : "";
  const caption = `Greedy test episodes, not smoothed.${several}${thinned(run.score, run.grids, 300)}`;
  const shown = figure(caption, chart({ unit, percent: run.percent, lines: run.score, ceilings: run.ceilings, height: 330, alt }, run.grids));
  const found = only ? [] : section("Score", shown); // the results of a page about one run are its score
  if (run.seeds.length) {
    const seeds = tableOf(["Seed", "Steps", "Final score", "Best score"], run.seeds);
    found.push(make("details", { id: "seeds" }, make("summary", {}, "Seed by seed"), seeds));
  }
  return found;
}

function episodeOf(run) {
  if (!run.episode) return run.unplayed ? section("One episode", make("p", { class: "note" }, run.unplayed)) : [];
  const calm = make("source", { media: "(prefers-reduced-motion: reduce)", srcset: run.episode.still });
  const moving = make("img", { src: run.episode.moving, alt: `Animation of one greedy episode of ${run.name}.` });
  const shown = figure("One greedy episode, played with the networks of the last checkpoint. It repeats.", make("picture", {}, calm, moving));
  shown.classList.add("episode");
  return section("One episode", shown);
}

function mapsOf(run) {
  if (!run.maps) return [];
  const { phases, seeds } = run.maps, ground = data.outlines[run.maps.outlines], paid = phases[0].bonus !== null;
  const most = extremes(phases.map((phase) => phase.visits))[1];
  const columns = phases.map((phase) => {
    const when = `steps ${inWords(Number(phase.first.toPrecision(3)))} to ${inWords(Number(phase.last.toPrecision(3)))}`;
    const title = make("h4", {}, `${phase.name[0].toUpperCase()}${phase.name.slice(1)}`, make("small", {}, when));
    const visits = { low: 0, high: most, power: 0.5, scale: YELLOW_BLUE, alt: `Visits to each cell, ${phase.name} in training.` };
    const found = [title, make("p", { class: "note" }, "visits (square-root colours)"), heatMap(phase.visits, visits, ground)];
    if (paid) {
      const [low, high] = extremes([phase.bonus]);
      const bonus = { low, high, power: 1, scale: YELLOW_RED, alt: `Mean intrinsic reward on each cell, ${phase.name} in training.` };
      found.push(make("p", { class: "note" }, "intrinsic reward per visit"), heatMap(phase.bonus, bonus, ground));
    }
    return make("div", {}, ...found);
  });
  const caption = `Steps of agents on each cell, summed over ${seeds}, on one scale; cells nobody came to are blank.`;
  const below = " Below, the mean intrinsic reward of steps there, each map on its own scale, because it fades as training goes on.";
  return section("Where agents went", figure(caption + (paid ? below : ""), make("div", { class: "maps" }, ...columns)));
}

function diagnosticsOf(run) {
  if (!run.panels.length) return [];
  const panels = run.panels.map((panel) => {
    const legend = make("p", { class: "legend" });
    for (const line of panel.lines.filter((line) => line.name)) legend.append(make("span", {}, sample(line), line.name));
    const alt = `${panel.title} of ${run.name} over environment steps.`;
    const parts = [make("h4", {}, panel.title), chart({ ...panel, height: 205, alt }, run.grids), ...(legend.childElementCount ? [legend] : [])];
    return make("div", {}, ...parts);
  });
  const several = run.panels.some((panel) => panel.lines.some((line) => line.low)) ? "; median and middle half over seeds" : "";
  const paid = run.panels.some((panel) => panel.lines.some((line) => line.name.startsWith("intrinsic")));
  let caption = `Means over the time since the evaluation before${several}, not smoothed.`;
  if (paid) caption += " Intrinsic reward is shown as it is paid, weighted by η.";
  caption += thinned(run.panels.flatMap((panel) => panel.lines), run.grids, 120);
  return section("Inside training", figure(caption, make("div", { class: "panels" }, ...panels)));
}

/** A field's name, indented as deep as it lies. */
function fieldName(path) {
  const parts = path.split("."), name = make("span", { title: path }, parts.at(-1));
  name.style.paddingLeft = `${parts.length - 1}em`;
  return name;
}

/** Every field of a run, with what the preset or another run has there where it differs. */
function fieldsOf(run, part, other) {
  const own = new Map(run.fields[part]);
  if (!other) {
    const preset = new Map(part ? [] : run.preset);
    return [...own].map(([path, value]) => {
      const note = preset.has(path) ? [" ", make("span", { class: "changed" }, `preset: ${preset.get(path)}`)] : [];
      return [fieldName(path), make("span", {}, make("code", {}, value), ...note)];
    });
  }
  const theirs = new Map(other.fields[part]);
  const differing = [...new Set([...own.keys(), ...theirs.keys()])].filter((path) => own.get(path) !== theirs.get(path));
  return differing.map((path) => [path, ...[own, theirs].map((fields) => make("code", {}, fields.get(path) ?? "—"))]);
}

function configurationOf(anchor, run, against) {
  const others = Object.keys(data.runs).filter((other) => other !== anchor);
  const found = section("Configuration");
  if (others.length) {
    const choice = make("select", { id: "against" }, make("option", { value: "" }, "nothing else: show every field"));
    for (const other of others) choice.append(make("option", { value: other }, `${data.runs[other].name} · ${data.runs[other].id}`));
    choice.value = against;
    choice.addEventListener("change", () => {
      history.replaceState(null, "", `#${anchor}${choice.value ? `&against=${choice.value}` : ""}`);
      tables.replaceChildren(...configurationTables(run, data.runs[choice.value]));
    });
    found.push(make("p", { class: "filters" }, make("label", {}, "Compare with", choice)));
  }
  const tables = make("div", { id: "configuration" }, ...configurationTables(run, data.runs[against]));
  return [...found, tables];
}

function configurationTables(run, other) {
  return ["Configuration", "Versions and machine"].map((title, part) => {
    const fields = fieldsOf(run, part, other);
    if (!other) return make("details", { id: `fields-${part}` }, make("summary", {}, title), tableOf(["Field", "Value"], fields));
    const said = fields.length ? tableOf(["Field", "This run", "The other"], fields) : make("p", {}, "No difference.");
    const details = make("details", { id: `fields-${part}`, class: "difference" }, make("summary", {}, `${title}: ${fields.length} differ`), said);
    details.open = part === 0;
    return details;
  });
}

function reproductionOf(run) {
  const how = run.command
    ? make("pre", { tabindex: "0" }, make("code", {}, run.command))
    : make("p", {}, "No command was recorded: the run was started from Python.");
  const promise = "The same version, configuration and seeds give the same numbers on the same kind of device.";
  return section("How to reproduce it", make("p", {}, run.source), how, make("p", {}, promise));
}

function runPage(anchor, against) {
  const run = data.runs[anchor];
  const facts = run.facts.map(([name, fact]) => make("div", {}, make("dt", {}, name), make("dd", {}, fact)));
  const heading = make("h2", {}, run.name, make("small", {}, `run ${run.id}`));
  const back = make("p", {}, make("a", { href: overviewAddress, id: "back" }, "← All runs"));
  return make(
    "section", {}, ...(only ? [] : [back]), heading, make("dl", {}, ...facts), ...scoresOf(run), ...episodeOf(run), ...mapsOf(run),
    ...diagnosticsOf(run), ...configurationOf(anchor, run, against), ...reproductionOf(run),
  );
}

// What the address asks for.

let overviewAddress = "#", overviewScroll = 0;
const title = document.title;

/** An address without escapes; as it is where they are none. */
function decoded(address) {
  try {
    return decodeURI(address);
  } catch {
    return address;
  }
}

function route() {
  const [place, ...rest] = decoded(location.hash.slice(1)).split("&");
  const state = new URLSearchParams(place.includes("=") ? location.hash.slice(1) : rest.join("&"));
  const anchor = Object.hasOwn(data.runs, place) ? place : only;
  if (anchor && !only && !byId("overview").hidden) overviewScroll = scrollY;
  byId("overview").hidden = Boolean(anchor && !only);
  byId("run").hidden = !anchor;
  document.title = anchor && !only ? `${data.runs[anchor].name} – ${title}` : title;
  if (anchor) {
    byId("run").replaceChildren(runPage(anchor, Object.hasOwn(data.runs, state.get("against") ?? "") ? state.get("against") : ""));
    if (!only) {
      scrollTo(0, 0);
      byId("run").focus({ preventScroll: true });
    }
    return;
  }
  const returning = byId("run").hasChildNodes();
  byId("run").replaceChildren();
  if (place.includes("=") || !place) overviewAddress = location.hash || "#";
  if (table && (place.includes("=") || !place)) restoreState(state);
  if (returning) scrollTo(0, overviewScroll);
  else if (place && !place.includes("=")) byId(place)?.scrollIntoView();
}

addEventListener("hashchange", route);
for (const row of bodies.flatMap((body) => [...body.rows]))
  row.addEventListener("click", (event) => {
    if (!event.target.closest("a, button") && !String(getSelection())) row.querySelector("a, button").click();
  });
document.addEventListener("click", (event) => {
  if (table && event.target.closest("#all a")) overviewAddress = location.hash || "#";
});
route();

// A page that is served while runs go on: when there is a newer one it is loaded in the place of this one, which then looks the same.

const seen = () => sessionStorage;

function restorePlace() {
  const place = JSON.parse(kept(seen, "emc-place") ?? "null");
  if (!place || place.address !== location.hash) return;
  for (const id of place.open) if (byId(id)) byId(id).open = true;
  for (const body of bodies) if (place.grown.includes(body.rows[0].title)) opener(body)?.setAttribute("aria-expanded", "true");
  if (table) applyFilters();
  if (place.focus) byId(place.focus)?.focus({ preventScroll: true });
  if (table) table.parentElement.scrollTop = place.tableScroll;
  overviewAddress = place.overviewAddress;
  if (byId("back")) byId("back").href = overviewAddress;
  overviewScroll = place.overviewScroll;
  requestAnimationFrame(() => scrollTo(0, place.scroll));
  kept(seen, "emc-place", "null");
}

function reloadInPlace() {
  const open = [...document.querySelectorAll("details[id]")].filter((details) => details.open).map((details) => details.id);
  const grown = bodies.filter((body) => opener(body)?.getAttribute("aria-expanded") === "true").map((body) => body.rows[0].title);
  const place = { address: location.hash, scroll: scrollY, open, grown, focus: document.activeElement?.id, overviewAddress, overviewScroll };
  kept(seen, "emc-place", JSON.stringify({ ...place, tableScroll: table?.parentElement.scrollTop ?? 0 }));
  location.reload();
}

async function follow() {
  let found = root.dataset.version;
  try {
    const answer = await fetch("version", { cache: "no-store" });
    if (answer.ok) found = await answer.text();
    byId("live").textContent = "live";
  } catch {
    byId("live").textContent = "the server has ended";
  }
  if (found !== root.dataset.version && !document.hidden) reloadInPlace();
  else setTimeout(follow, 1000);
}

if (root.dataset.version) {
  byId("live").hidden = false;
  restorePlace();
  follow();
}
