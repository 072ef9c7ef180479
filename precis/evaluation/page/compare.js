"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#6b4c9a", "#555555"];
const colour = (system) => COLOURS[system] ?? `hsl(${(system * 137.5) % 360} 70% ${system % 2 ? 55 : 25}%)`;
const at = (id) => document.getElementById(id);

/** An element with attributes and children; texts are set as text, never read as HTML. */
function make(name, attributes = {}, ...children) {
  const drawn = ["svg", "path", "line", "text", "g", "rect", "title", "circle"].includes(name);
  const element = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function fill(select, names, chosen) {
  select.replaceChildren(...names.map(([value, text]) => make("option", { value }, text)));
  if (chosen !== undefined) select.value = chosen;
}

const swatch = (system) => make("span", { class: "swatch", style: `background:${colour(system)}` });
const number = (value, signed = false) =>
  value === null || value === undefined ? "–" : (signed && value >= 0 ? "+" : "") + value.toFixed(2).replace("-", "−");

// Scores and configs

function showScores() {
  const names = make("tr", {}, make("th", { scope: "col" }, "system"), make("th", { scope: "col" }, "seeds"));
  for (const measure of data.measures) names.append(make("th", { scope: "col" }, measure));
  const body = make("tbody");
  data.systems.forEach((system, index) => {
    const tag = index === data.baseline ? [make("div", { class: "tag" }, "baseline")] : [];
    const row = make("tr", {}, make("th", { scope: "row" }, swatch(index), system.name, ...tag));
    row.append(make("td", { class: "number" }, String(system.runs.length)));
    system.cells.forEach(([mean, ...rest], column) => {
      const lines = rest.map((line, place) =>
        make("span", place === 1 && system.significant[column] ? { class: "significant" } : {}, line));
      row.append(make("td", { class: "number" }, make("strong", {}, mean), ...lines));
    });
    body.append(row);
  });
  at("score-table").append(make("thead", {}, names), body);
  at("how").append(...data.how.map((line) => make("li", {}, line)));
  const runs = data.systems.reduce((sum, system) => sum + system.runs.length, 0);
  at("summary").textContent = [
    counted(data.systems.length, "system"), "of", counted(runs, "run"), "on", counted(data.allDocuments, "document"),
  ].join(" ");
}

const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

const commit = (run) => (run.git_commit || "–").slice(0, 10) + (run.git_dirty ? " (changed)" : "");

function showConfigs() {
  const header = make("tr", {}, make("th", { scope: "col" }, "key"));
  data.systems.forEach((system, index) => header.append(make("th", { scope: "col" }, swatch(index), system.name)));
  const rows = Object.entries(data.differences).map(([key, values]) =>
    make("tr", {}, make("th", { scope: "row" }, key), ...values.map((value) => make("td", {}, value))));
  const none = make("tr", {}, make("td", { colspan: data.systems.length + 1 }, "The configs say the same."));
  at("config-table").append(make("thead", {}, header), make("tbody", {}, ...(rows.length ? rows : [none])));
  const keys = ["path", "seed", "git_commit", "device", "python", "command"];
  const runs = data.systems.flatMap((system, index) => system.runs.map((run) =>
    make("tr", {}, make("th", { scope: "row" }, swatch(index), system.name),
      ...keys.map((key) => make("td", {}, key === "git_commit" ? commit(run) : String(run[key] ?? "–"))))));
  const head = make("tr", {}, ...["system", ...keys].map((key) => make("th", { scope: "col" }, key)));
  at("run-table").append(make("thead", {}, head), make("tbody", {}, ...runs));
}

// Plots

/** Round numbers between two values, about `count` of them. */
function ticks(low, high, count = 6) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place++) found.push(place * step);
  return found;
}

/** A chart is drawn as wide as its place, so that its letters keep their size and nothing is cut. */
const chartWidth = (id) => Math.max(300, at(id).clientWidth || 1100);

const label = (value) => String(Number(value.toPrecision(6)));

function showCurves() {
  const curves = data.curves[at("curve-name").value] || [];
  const [width, height, left, bottom, top] = [chartWidth("curve-plot"), 340, 64, 40, 12];
  const points = curves.flatMap((curve) => curve.points);
  const bounds = (place) => points.reduce(([low, high], point) =>
    [Math.min(low, point[place]), Math.max(high, point[place])], [Infinity, -Infinity]);
  const [first, last] = bounds(0);
  let [low, high] = bounds(1);
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const x = (step) => left + ((step - first) / (last - first || 1)) * (width - left - 16);
  const y = (value) => height - bottom - ((value - low) / (high - low)) * (height - bottom - top);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${at("curve-name").value} by step` });
  for (const value of ticks(low, high)) {
    svg.append(make("line", { class: "axis", x1: left, x2: width - 16, y1: y(value), y2: y(value) }));
    svg.append(make("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, label(value)));
  }
  for (const step of ticks(first, last, width / 60).filter(Number.isInteger))
    svg.append(make("text", { x: x(step), y: height - bottom + 20, "text-anchor": "middle" }, label(step)));
  svg.append(make("text", { x: width - 16, y: height - 4, "text-anchor": "end" }, "step"));
  for (const curve of curves) {
    const path = curve.points.map(([step, value], place) => `${place ? "L" : "M"}${x(step).toFixed(1)},${y(value).toFixed(1)}`);
    const name = `${data.systems[curve.system].name}, seed ${curve.seed}`;
    const end = curve.points[curve.points.length - 1];
    const line = { d: path.join(""), fill: "none", stroke: colour(curve.system), "stroke-width": 1.8, "stroke-linejoin": "round" };
    svg.append(make("g", {}, make("title", {}, name), make("path", line),
      make("circle", { cx: x(end[0]), cy: y(end[1]), r: 3, fill: colour(curve.system) })));
  }
  at("curve-plot").replaceChildren(curves.length ? svg : make("p", {}, "No run has a metrics.csv with values."));
  const shown = [...new Set(curves.map((curve) => curve.system))];
  at("curve-legend").replaceChildren(...shown.map((system) => make("span", {}, swatch(system), data.systems[system].name)));
}

function showDistribution() {
  const kind = at("distribution-kind").value;
  const { edges, shares, means } = data.distributions[at("distribution-name").value][kind];
  const shown = shares.map((_, system) => system).filter((system) => kind === "scores" || system !== data.baseline);
  const [width, row, left, bottom] = [chartWidth("distribution-plot"), 78, 16, 34];
  const height = shown.length * row + bottom;
  const [low, high] = [edges[0], edges[edges.length - 1]];
  const x = (value) => left + ((value - low) / (high - low)) * (width - 2 * left);
  const most = Math.max(1e-9, ...shown.flatMap((system) => shares[system]));
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Distribution over documents" });
  for (const value of ticks(low, high, width / 50)) {
    svg.append(make("line", { class: "axis", x1: x(value), x2: x(value), y1: 0, y2: height - bottom }));
    svg.append(make("text", { x: x(value), y: height - bottom + 18, "text-anchor": "middle" }, label(value)));
  }
  shown.forEach((system, place) => {
    const floor = (place + 1) * row - 4;
    shares[system].forEach((share, bin) => {
      const size = (share / most) * (row - 26);
      const bar = make("rect", { x: x(edges[bin]) + 0.5, width: Math.max(1, x(edges[bin + 1]) - x(edges[bin]) - 1),
        y: floor - size, height: size, fill: colour(system), "fill-opacity": 0.75 });
      bar.append(make("title", {}, `${label(edges[bin])} to ${label(edges[bin + 1])}: ${(100 * share).toFixed(1)} %`));
      svg.append(bar);
    });
    svg.append(make("line", { class: "axis", x1: left, x2: width - left, y1: floor, y2: floor }));
    const mean = means[system];
    if (mean !== null) svg.append(make("line", { x1: x(mean), x2: x(mean), y1: floor - row + 24, y2: floor, stroke: "#1c2430", "stroke-width": 2 }));
    svg.append(make("text", { class: "name", x: left, y: floor - row + 18 }, `${data.systems[system].name}, mean ${number(mean)}`));
  });
  at("distribution-plot").replaceChildren(shown.length ? svg : make("p", {}, "There is no other system than the baseline."));
}

// Documents

const several = data.systems.length > 1;
let shownDocuments = [];
let selected = 0; // place in shownDocuments

/** A document's score, or the difference between two systems where there are several. */
function judged(found) {
  const [measure, system] = [Number(at("document-measure").value), Number(at("document-system").value)];
  const score = found.outputs[several ? system : 0].scores[measure];
  if (!several || score === null) return score;
  const other = found.outputs[Number(at("document-other").value)].scores[measure];
  return other === null ? null : score - other;
}

function listDocuments() {
  const least = several ? Number(at("document-least").value) || 0 : 0;
  const words = at("document-text").value.toLowerCase();
  const holds = (found) => !words || [found.id, found.source || "", ...found.references.flat(), ...found.outputs.flatMap((output) => output.text)]
    .some((text) => text.toLowerCase().includes(words));
  const rows = data.documents.map((found, place) => ({ found, place, value: judged(found) }))
    .filter(({ found, value }) => (least === 0 || (value !== null && Math.abs(value) >= least)) && holds(found));
  const order = at("document-order").value;
  const sign = { up: -1, down: 1 }[order];
  const key = (row) => (row.value === null ? Infinity : order === "far" ? -Math.abs(row.value) : sign * row.value);
  if (order !== "corpus") rows.sort((one, other) => key(one) - key(other) || one.place - other.place);
  shownDocuments = rows;
  at("document-list").replaceChildren(...rows.map(({ found, value }, place) =>
    make("div", { role: "option", id: `option-${place}`, "data-place": place }, `${number(value, several)}   ${found.id}`)));
  const all = data.documents.length === data.allDocuments ? "" : ` (of ${data.allDocuments} compared)`;
  at("document-count").textContent = `${rows.length} of ${data.documents.length} documents${all}`;
  select(0);
}

/** Shows a document of the list. */
function select(place) {
  const list = at("document-list");
  if (list.children[selected]) list.children[selected].removeAttribute("aria-selected");
  selected = Math.max(0, Math.min(shownDocuments.length - 1, place));
  const option = list.children[selected];
  if (option) {
    option.setAttribute("aria-selected", "true");
    list.setAttribute("aria-activedescendant", option.id);
    // Only the list moves, and not the page with it.
    if (option.offsetTop < list.scrollTop) list.scrollTop = option.offsetTop;
    const below = option.offsetTop + option.offsetHeight - list.clientHeight;
    if (below > list.scrollTop) list.scrollTop = below;
  }
  showDocument();
}

/** The space after a sentence, or after a word: none in scripts without spaces. */
const EAST_ASIAN = "\\p{sc=Han}\\p{sc=Hiragana}\\p{sc=Katakana}\\u30fc\\u3000-\\u303f\\uff00-\\uffef";
const AFTER_SENTENCE = new RegExp(`[${EAST_ASIAN}]$`, "u");
const AFTER_WORD = new RegExp(`[${EAST_ASIAN}\\p{sc=Thai}\\p{sc=Lao}\\p{sc=Khmer}\\p{sc=Myanmar} ]\\p{M}*$`, "u");
const spaceAfter = (text, unspaced) => (unspaced.test(text) ? "" : " ");
const joined = (sentences) =>
  sentences.reduce((text, next) => text + (text && spaceAfter(text, AFTER_SENTENCE)) + next, "");

/** Words with runs of copied ones marked. */
function marked(words, copied) {
  const nodes = [];
  let run = null;
  words.forEach((word, place) => {
    const space = place ? spaceAfter(words[place - 1], AFTER_WORD) : "";
    if (run && copied[place]) { run.textContent += space + word; return; }
    run = copied[place] ? make("mark", {}, word) : null;
    nodes.push(space, run || word);
  });
  return nodes;
}

function showDocument() {
  const row = shownDocuments[selected];
  if (!row) {
    at("document").replaceChildren(make("p", {}, "No document fits; ask for a smaller difference or for other words."));
    return;
  }
  const { found } = row;
  const source = found.source === undefined ? [] : [make("div", { class: "text source", tabindex: 0 },
    make("h3", {}, "document"), ...found.source.split("\n\n").map((paragraph) => make("p", { dir: "auto" }, paragraph)))];
  const cards = found.references.map((reference, place) => make("div", { class: "text reference" },
    make("h3", {}, found.references.length > 1 ? `reference ${place + 1}` : "reference"), make("p", { dir: "auto" }, joined(reference))));
  found.outputs.forEach((output, system) => {
    const { name, runs } = data.systems[system];
    const scores = output.scores.map((score, measure) => `${data.measures[measure]} ${number(score)}`).join("   ");
    const body = output.words ? marked(output.words, output.copied) : [joined(output.text) || "(empty)"];
    const seed = runs.length > 1 ? ` (seed ${runs[0].seed})` : "";
    cards.push(make("div", { class: "text output", style: `border-left-color:${colour(system)}` },
      make("h3", {}, name + seed), make("p", { dir: "auto" }, ...body), make("p", { class: "scores" }, scores)));
  });
  const copied = found.outputs.some((output) => output.words);
  const note = copied ? [make("p", { class: "small" }, make("mark", {}, "marked words"), " were copied from the document")] : [];
  at("document").replaceChildren(make("h3", {}, found.id), ...source, ...cards, ...note);
}

function startDocuments() {
  const system = data.systems.findIndex((_, index) => index !== data.baseline);
  fill(at("document-measure"), data.measures.map((name, index) => [index, name]), 0);
  const names = data.systems.map(({ name }, index) => [index, name]);
  fill(at("document-system"), names, Math.max(0, system));
  fill(at("document-other"), names, data.baseline);
  const better = [["down", several ? "worse than the other first" : "lowest first"], ["up", several ? "better than the other first" : "highest first"]];
  fill(at("document-order"), [...(several ? [["far", "largest difference first"]] : []), ...better, ["corpus", "as in the corpus"]]);
  for (const id of ["document-system-label", "document-other-label", "document-least-label"]) at(id).hidden = !several;
  for (const id of ["document-measure", "document-system", "document-other", "document-order", "document-least", "document-text"])
    at(id).addEventListener("input", listDocuments);
  at("document-list").addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) select(Number(option.dataset.place));
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, select")) return;
    const inList = event.target.closest("#document-list");
    const moves = { j: 1, k: -1, ...(inList ? { ArrowDown: 1, ArrowUp: -1, Home: -Infinity, End: Infinity } : {}) };
    if (!(event.key in moves)) return;
    select(selected + moves[event.key]);
    event.preventDefault();
  });
  listDocuments();
}

const logged = Object.keys(data.curves).sort((one, other) => other.startsWith("val/") - one.startsWith("val/") || one.localeCompare(other));
fill(at("curve-name"), logged.map((name) => [name, name]), logged.includes("val/rouge1") ? "val/rouge1" : logged[0]);
fill(at("distribution-name"), data.measures.map((name) => [name, name]));
at("curve-name").addEventListener("input", showCurves);
for (const id of ["distribution-name", "distribution-kind"]) at(id).addEventListener("input", showDistribution);
window.addEventListener("resize", () => { showCurves(); showDistribution(); });
showScores();
showCurves();
showDistribution();
showConfigs();
startDocuments();
