"use strict";
// Tables, figures and documents of the report. Every name enters the page as text, never as markup.
const make = (tag, attributes = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), attributes);
  element.append(...children.filter((child) => child !== null));
  return element;
};
const read = (element) => JSON.parse(element.textContent);

// Tables: sort, filter, hide columns, copy.
const number = (text) => {
  const found = text.replaceAll("−", "-").replaceAll(",", "").match(/^[^\d+-]{0,2}([+-]?\d+(\.\d+)?)/);
  return found ? Number(found[1]) : text.startsWith("–") || text === "" ? NaN : null;
};
function equip(table) {
  const head = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  const original = [...body.rows];
  for (const row of original) {  // names break where their parts do
    const parts = row.cells[0].textContent.split(/(?<=[_:\/@-])/);
    row.cells[0].replaceChildren(...parts.flatMap((part) => [part, make("wbr")]));
  }
  const sort = (column, direction) => {
    const of = (row) => row.cells[column].textContent.trim();
    const numeric = original.every((row) => number(of(row)) !== null);
    const order = (a, b) => {
      if (!numeric) return direction * of(a).localeCompare(of(b));
      const [x, y] = [number(of(a)), number(of(b))];
      return Number.isNaN(x) - Number.isNaN(y) || direction * (x - y) || 0;
    };
    head.forEach((th, at) => th.setAttribute("aria-sort", at !== column ? "none" : direction > 0 ? "ascending" : "descending"));
    body.append(...[...original].sort(order));
  };
  head.forEach((th, column) => {
    const button = make("button", { type: "button", title: `${th.title}${th.title && ". "}Sort`, textContent: th.textContent });
    th.replaceChildren(button);
    button.onclick = () => sort(column, th.getAttribute("aria-sort") === "descending" ? 1 : column === 0 && th.getAttribute("aria-sort") !== "ascending" ? 1 : -1);
  });
  if (original.length < 4 || table.classList.contains("plain")) return;
  const filter = make("input", { type: "search", placeholder: "Filter rows", ariaLabel: "Filter rows" });
  filter.oninput = () => {
    const wanted = filter.value.toLowerCase();
    original.forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
  };
  const columns = make("details", {}, make("summary", { textContent: "Columns" }), make("div", { className: "columns" }));
  head.slice(1).forEach((th, at) => {
    const box = make("input", { type: "checkbox", checked: true });
    box.onchange = () => [...table.rows].forEach((row) => { row.cells[at + 1].hidden = !box.checked; });
    columns.lastChild.append(make("label", {}, box, ` ${th.textContent}`));
  });
  const copy = make("button", { type: "button", textContent: "Copy" });
  copy.onclick = async () => {
    const shown = [...table.rows].filter((row) => !row.hidden);
    const cells = (row) => [...row.cells].filter((cell) => !cell.hidden).map((cell) => cell.textContent.trim().replace(/\s+/g, " "));
    const text = shown.map((row) => cells(row).join("\t")).join("\n");
    try { await navigator.clipboard.writeText(text); } catch {
      const area = make("textarea", { value: text });
      document.body.append(area); area.select(); document.execCommand("copy"); area.remove();
    }
    copy.textContent = "Copied"; setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  };
  table.parentElement.before(make("div", { className: "tools" }, filter, columns, copy));
}

// Figures: drawn when they come near, as wide as the window allows.
const config = read(document.getElementById("config"));
function fitted(spec, width, isWide) {
  if (spec.concat) {
    const wide = spec.concat.reduce((sum, child) => sum + (child.width || 0) + 130, 0);
    const one = width < Math.min(wide, 700);
    const concat = spec.concat.map((child) => ({ ...child, width: Math.min(child.width || 300, width - 150) }));
    return { ...spec, columns: one ? 1 : spec.columns, concat };
  }
  if (typeof spec.width !== "number") return spec;
  if (width > spec.width + 90) return isWide ? { ...spec, width: width - 90 } : spec;
  const square = spec.height && Math.abs(spec.width - spec.height) < 2;
  return { ...spec, width, height: square ? width : spec.height, autosize: { type: "fit-x", contains: "padding" } };
}
async function draw(figure) {
  const chart = figure.querySelector(".chart"), width = chart.clientWidth;
  if (!width || chart.dataset.width === String(width)) return;
  chart.dataset.width = width;
  const spec = fitted(read(figure.querySelector(".spec")), width, figure.classList.contains("wide"));
  const tooltip = { disableDefaultStyle: false };
  const narrow = width < 480 ? { ...config, legend: { ...config.legend, columns: 2 } } : config;
  const shown = await vegaEmbed(chart, spec, { config: narrow, renderer: "svg", actions: false, tooltip });
  // The frame that one draws has no name.
  chart.querySelectorAll("[role='graphics-symbol']:not([aria-label])").forEach((mark) => mark.setAttribute("aria-hidden", "true"));
  chart.dataset.drawn = "yes";
  figure.view = shown.view;
}
const near = new IntersectionObserver((seen) => seen.forEach((one) => one.isIntersecting && draw(one.target)), { rootMargin: "600px" });
const reveal = (element) => { for (let at = element?.closest("details"); at; at = at.parentElement.closest("details")) at.open = true; };
const redraw = () => document.querySelectorAll("figure .chart[data-drawn]").forEach((chart) => draw(chart.closest("figure")));

// Documents one by one.
const FILTERS = {
  "all documents": () => true,
  "all models wrong, RL-Focal right": (d) => d.right === 0 && d.ours.some((one) => one[2]),
  "most models wrong, RL-Focal right": (d) => d.right * 2 < d.s.length && d.ours.some((one) => one[2]),
  "most models right, RL-Focal wrong": (d) => d.right * 2 > d.s.length && d.ours.some((one) => !one[2]),
  "unanimous and wrong (is the label?)": (d) => d.right === 0 && d.s[0] >= 0 && d.s.every((said) => said === d.s[0]),
  "no model right": (d) => d.right === 0,
  "all models right": (d) => d.right === d.s.length,
  "models disagree": (d) => new Set(d.s).size > 1,
};
function explore(place) {
  const data = read(place.querySelector("script"));
  data.documents.forEach((d) => { d.right = d.s.filter((said) => said === d.y && said >= 0).length; d.ours = Object.values(d.f); });
  const filter = make("select", { ariaLabel: "Which documents" });
  for (const [name, keeps] of Object.entries(FILTERS)) {
    const n = data.documents.filter(keeps).length;
    filter.append(make("option", { value: name, textContent: `${name} (${n.toLocaleString("en")})`, disabled: n === 0 }));
  }
  const task = make("select", { ariaLabel: "Task" }, make("option", { value: "", textContent: "all tasks" }));
  data.tasks.forEach((name, at) => task.append(make("option", { value: at, textContent: name })));
  const search = make("input", { type: "search", placeholder: "Words of the question", ariaLabel: "Words of the question" });
  const [back, next] = ["Previous", "Next"].map((textContent) => make("button", { type: "button", textContent }));
  const where = make("span", { className: "where", role: "status" });
  const shown = make("article", { className: "document" });
  let found = [], at = 0;
  const show = () => {
    where.textContent = found.length ? `${(at + 1).toLocaleString("en")} of ${found.length.toLocaleString("en")}` : "none";
    shown.replaceChildren(...(found.length ? pictured(found[at], data) : ["No such document."]));
    back.disabled = at === 0; next.disabled = at >= found.length - 1;
  };
  const choose = () => {
    const words = search.value.toLowerCase();
    found = data.documents.filter((d) => FILTERS[filter.value](d) && (task.value === "" || d.t === Number(task.value)) && (d.q || "").toLowerCase().includes(words));
    at = 0; show();
  };
  filter.onchange = task.onchange = search.oninput = choose;
  back.onclick = () => { at -= 1; show(); };
  next.onclick = () => { at += 1; show(); };
  place.append(make("div", { className: "tools" }, filter, data.tasks.length > 1 ? task : null, search, back, next, where), shown);
  choose();
}
function pictured(d, data) {
  const letter = (slot) => slot < 0 ? "no answer" : d.c ? (slot < 26 ? String.fromCharCode(65 + slot) : `${slot}`) : d.a ? d.a[slot] : `answer ${slot + 1}`;
  const parts = [make("p", { className: "under", textContent: `${data.tasks[d.t]} · document ${d.i}` })];
  parts.push(make("div", { className: "question", textContent: d.q || (d.q === "" ? "The warehouse holds no text of this question." : "The text of this question is confidential.") }));
  const choices = d.c;
  const count = choices ? Math.max(...d.p.map((of) => of.length)) : Math.max(0, ...d.s.map((said) => said + 1));
  if (d.a && d.a.length && choices) parts.push(make("ol", {}, ...d.a.map((text, slot) => make("li", { className: slot === d.y ? "right" : "", textContent: `${letter(slot)}: ${text}${slot === d.y ? " (right)" : ""}` }))));
  else parts.push(make("p", { className: "right", textContent: d.y >= 0 ? `Right: ${letter(d.y)}` : d.g !== undefined ? `Right: ${d.g}, which no model gave` : "No model gave the right answer" }));
  const rows = [];
  for (const [method, [rounds, said, correct, sure]] of Object.entries(d.f)) {
    const asked = rounds.map((round) => round.map((m) => data.models[m]).join(" + ")).join(", then ");
    parts.push(make("p", {}, make("b", { textContent: `${method} ` }), make("span", { className: correct ? "right" : "wrong", textContent: `says ${letter(said)}, ${correct ? "right" : "wrong"}` }), `${sure === null ? "" : ` (${sure} % sure)`}; it asked ${asked || "nobody"}.`));
  }
  const everAsked = new Set(d.ours.flatMap((one) => one[0].flat()));
  const header = make("tr", {}, make("th", { textContent: "model", scope: "col" }), make("th", { textContent: "says", scope: "col" }));
  const columns = choices && count <= 12 ? [...Array(count).keys()] : null;
  if (columns) columns.forEach((slot) => header.append(make("th", { textContent: letter(slot), scope: "col" })));
  else header.append(make("th", { textContent: "its answers", scope: "col", className: "members" }));
  d.s.forEach((said, m) => {
    const row = make("tr", { className: everAsked.has(m) ? "asked" : "" }, make("th", { textContent: data.models[m], scope: "row" }), make("td", { className: said === d.y && said >= 0 ? "right" : "wrong", textContent: `${letter(said)} ${said === d.y && said >= 0 ? "✓" : "✗"}` }));
    if (columns) columns.forEach((slot) => {
      const share = d.p[m][slot], bar = make("span", { className: "share" });
      bar.style.width = `${(share || 0) * 0.03}rem`;
      row.append(make("td", { className: "bar" }, bar, share === undefined ? "–" : `${share}`));
    });
    else row.append(make("td", { className: "members", textContent: d.p[m].map((one, at) => (choices ? `${letter(at)} ${one} %` : `${letter(one[0])} ${one[1]} %`)).join(", ") }));
    rows.push(row);
  });
  parts.push(make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, make("thead", {}, header), make("tbody", {}, ...rows))));
  parts.push(make("p", { className: "under", textContent: "Probabilities in %. Bold: a model that RL-Focal asked." }));
  return parts;
}

// One benchmark at a time, or all.
const picker = document.getElementById("board");
const boards = [...document.querySelectorAll("section.board")];
function pick(anchor) {
  const picked = boards.filter((board) => !anchor || board.id === anchor);
  boards.forEach((board) => { board.hidden = !picked.includes(board); });
  const heads = anchor ? [...picked[0].querySelectorAll("h3[id]")] : boards.map((board) => board.querySelector("h2"));
  document.querySelector(".jumps").replaceChildren(...heads.map((head) => make("a", { href: `#${head.id}`, textContent: head.textContent })));
  for (const board of picked) for (const place of board.querySelectorAll(".documents:not([data-ready])")) { place.dataset.ready = "yes"; explore(place); }
  document.querySelectorAll(".printed").forEach((note) => { note.hidden = !anchor; });
  redraw();
}
const target = () => document.getElementById(decodeURIComponent(location.hash.slice(1)));
const named = () => { reveal(target()); return target()?.closest("section.board")?.id; };
document.querySelectorAll("table").forEach(equip);
document.querySelectorAll(".scroll, .jumps").forEach((scroll) => { scroll.tabIndex = 0; });
document.querySelectorAll("figure").forEach((figure) => near.observe(figure));
if (picker) {
  picker.onchange = () => pick(picker.value);
  const go = (anchor) => { picker.value = anchor; pick(anchor); };
  window.addEventListener("hashchange", () => { const board = named(); if (board && picker.value && board !== picker.value) go(board); });
  go(named() || picker.value);
}
let waiting;
window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(redraw, 150); });
window.addEventListener("beforeprint", () => {
  document.querySelectorAll("section.board:not([hidden]) details.more").forEach((one) => { one.open = true; });
  document.querySelectorAll("section.board:not([hidden]) figure").forEach(draw);
});
