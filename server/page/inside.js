// What is inside the server: the blocks of the KV cache and who holds them, beside the plan; the timelines of requests. It reads
// /debug/blocks and /debug/requests, which may ask for a key of their own.

import { HttpError, askInside, keepInsideKey } from "./api.js";

const kEvery = 1000;
const $ = (id) => document.getElementById(id);
const names = { f: "free", c: "cached", h: "held", s: "shared" };
let engines = [];   // the latest answer
let picked = "";    // request id whose blocks are shown and whose timeline is open
let open = false;

const bytes = (n) => {
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (n < 1024 || unit === "TiB") return `${n < 10 && unit !== "B" ? n.toFixed(1) : Math.round(n)} ${unit}`;
    n /= 1024;
  }
};
const seconds = (s) => s < 1 ? `${(1000 * s).toFixed(s < 0.01 ? 1 : 0)} ms` : `${s.toFixed(2)} s`;

function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function table(caption, head, rows) {
  const made = element("table");
  made.append(element("caption", caption));
  const top = made.createTHead().insertRow();
  for (const text of head) top.append(element("th", text, { scope: "col" }));
  const body = made.createTBody();
  for (const cells of rows) {
    const row = body.insertRow();
    for (const cell of cells) row.insertCell().append(cell);
  }
  return made;
}

function counts(engine) {
  const sum = { h: 0, s: 0, c: 0 };
  for (const group of engine.groups) { sum.h += group.held; sum.s += group.shared; sum.c += group.cached; }
  return { ...sum, f: engine.num_blocks - sum.h - sum.s - sum.c };
}

// A square for each cell, as many in a row as fit.
function drawMap(canvas, engine) {
  const style = getComputedStyle(document.documentElement);
  const color = Object.fromEntries(Object.entries(names).map(([letter, name]) => [letter, style.getPropertyValue(`--block-${name}`)]));
  const width = canvas.parentElement.clientWidth;
  const side = Math.max(4, Math.min(16, Math.floor(Math.sqrt(width * 220 / Math.max(1, engine.cells.length)))));
  const columns = Math.max(1, Math.floor(width / side));
  const rows = Math.ceil(engine.cells.length / columns);
  const ratio = window.devicePixelRatio || 1;
  canvas.width = columns * side * ratio;
  canvas.height = rows * side * ratio;
  canvas.style.width = `${columns * side}px`;
  canvas.style.height = `${rows * side}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  const dim = picked && engine.requests.some((r) => r.request_id === picked);
  for (let i = 0; i < engine.cells.length; i++) {
    const owner = engine.requests[engine.cell_requests[i]];
    pen.globalAlpha = dim && owner?.request_id !== picked && engine.cells[i] !== "f" ? 0.3 : 1;
    pen.fillStyle = color[engine.cells[i]];
    pen.fillRect(side * (i % columns), side * Math.floor(i / columns), side - 1, side - 1);
  }
  canvas.dataset.columns = columns;
  canvas.dataset.side = side;
}

function describe(engine, cell) {
  if (!(cell in engine.cells)) return "";
  const first = 1 + cell * engine.blocks_per_cell;
  const last = Math.min(engine.num_blocks, first + engine.blocks_per_cell - 1);
  const owner = engine.requests[engine.cell_requests[cell]];
  const group = engine.groups[engine.cell_groups[cell]];
  const parts = [last > first ? `blocks ${first} to ${last}: mostly` : `block ${first}:`, names[engine.cells[cell]]];
  if (group) parts.push(`· ${group.kind.replaceAll("_", " ")}`);
  if (owner) parts.push(`· ${owner.request_id || `request ${owner.engine_request}`}`);
  return parts.join(" ");
}

function legend(engine) {
  const list = element("ul", "", { class: "legend" });
  const sum = counts(engine);
  for (const letter of "hscf") {
    const item = element("li", `${names[letter]} ${sum[letter].toLocaleString()}`);
    item.prepend(element("i", "", { class: names[letter] }));
    list.append(item);
  }
  return list;
}

function requestButton(one) {
  const id = one.request_id;
  const button = element("button", id ? id.slice(0, 18) : `another front end's`, { type: "button", title: id });
  button.disabled = !id;
  button.setAttribute("aria-pressed", id === picked);
  button.addEventListener("click", () => { picked = id === picked ? "" : id; show(); showTimeline(); });
  return button;
}

function drawEngine(engine, parent) {
  const { plan } = engine;
  parent.append(element("h3", `Engine ${engine.engine} · ${plan.device}`), legend(engine));
  const box = element("div", "", { class: "map" });
  const sum = counts(engine);
  const label = `${engine.num_blocks} blocks: ${sum.h} held, ${sum.s} shared, ${sum.c} cached, ${sum.f} free`;
  const canvas = element("canvas", "", { role: "img", "aria-label": label });
  const hint = element("p", engine.blocks_per_cell > 1 ? `${engine.blocks_per_cell} blocks a square` : "a square is a block", { class: "soft" });
  canvas.addEventListener("pointermove", (event) => {
    const { columns, side } = canvas.dataset;
    hint.textContent = describe(engine, Math.floor(event.offsetY / side) * columns + Math.floor(event.offsetX / side)) || hint.textContent;
  });
  box.append(canvas, hint);
  parent.append(box);
  drawMap(canvas, engine);
  parent.append(table("Groups of layers", ["kind", "layers", "tokens a block", "page", "held", "shared", "cached"],
    engine.groups.map((g) => [g.kind.replaceAll("_", " "), g.layers, g.block_size, bytes(g.page_bytes), g.held, g.shared, g.cached])));
  if (engine.requests.length) {
    parent.append(table("Who holds what", ["request", "group", "tokens", "blocks", "shared"],
      engine.requests.map((r) => [requestButton(r), r.group, r.tokens, r.blocks, r.shared])));
  }
  parent.append(table(`The plan: ${plan.kv_cache_size_tokens.toLocaleString()} tokens in the cache (${plan.kv_cache_dtype}), ` +
    `${plan.max_concurrency.toFixed(2)} requests of ${plan.max_model_len.toLocaleString()}`, ["memory for", "planned", "allocated"],
    plan.memory.filter((m) => m.planned_bytes || m.allocated_bytes).map((m) => [m.purpose.replaceAll("_", " "), bytes(m.planned_bytes), bytes(m.allocated_bytes)])));
}

function show() {
  const focused = document.activeElement?.title;
  const parts = document.createDocumentFragment();
  const holder = element("div");
  parts.append(holder);
  $("engines").replaceChildren(parts);
  for (const engine of engines) drawEngine(engine, holder);
  if (focused) [...$("engines").querySelectorAll("button")].find((b) => b.title === focused)?.focus();
}

// Waiting and running as bars on one line, then each decision with its sentence.
function bars(one) {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", "0 0 1000 14");
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", one.summary);
  const whole = Math.max(one.seconds, 1e-6);
  let since = 0, runs = false;
  const add = (until) => {
    const bar = document.createElementNS(space, "rect");
    for (const [name, value] of [["x", 1000 * since / whole], ["width", Math.max(1, 1000 * (until - since) / whole)], ["y", 0], ["height", 14]]) bar.setAttribute(name, value);
    bar.setAttribute("class", runs ? "runs" : "waits");
    picture.append(bar);
  };
  for (const d of one.decisions) {
    const now = ["started", "resumed"].includes(d.kind) ? true : ["preempted", "finished"].includes(d.kind) ? false : runs;
    if (now === runs) continue;
    add(d.seconds);
    [since, runs] = [d.seconds, now];
  }
  if (!one.ended || since < one.seconds) add(one.seconds);
  return picture;
}

function drawTimeline(one) {
  const made = element("article");
  made.append(element("h4", `${one.request_id || "request " + one.engine_request} · ${seconds(one.seconds)}${one.ended ? "" : " so far"}`),
    bars(one), element("p", one.summary, { class: "soft" }));
  const list = element("ol");
  for (const d of one.decisions) {
    const item = element("li", d.text);
    item.prepend(element("time", seconds(d.seconds)));
    list.append(item);
  }
  made.append(list);
  return made;
}

async function showTimeline() {
  const path = picked ? `debug/requests/${encodeURIComponent(picked)}` : "debug/requests";
  try {
    const { requests } = await (await askInside(path)).json();
    $("timelines-title").textContent = picked ? "What became of this request" : "The slowest of the latest requests";
    $("timelines").replaceChildren(...requests.slice(0, picked ? 20 : 5).map(drawTimeline));
  } catch (error) {
    $("timelines").replaceChildren(element("p", error.message, { class: "error" }));
  }
}

async function look() {
  try {
    ({ engines } = await (await askInside("debug/blocks")).json());
    $("inside-key").hidden = true;
    $("inside-state").textContent = "";
    show();
    await showTimeline();
  } catch (error) {
    $("inside-key").hidden = !(error instanceof HttpError && error.status === 401);
    $("inside-state").textContent = error.status === 401 ? "What is inside asks for the admin's key." : error.message;
  }
}

function toggle() {
  open = !open;
  $("inside").hidden = !open;
  $("talking").hidden = open;
  $("ask").hidden = open;
  $("show-inside").setAttribute("aria-expanded", open);
  if (open) look();
}

export function startInside() {
  $("show-inside").addEventListener("click", toggle);
  $("inside-key").addEventListener("submit", (event) => {
    event.preventDefault();
    keepInsideKey($("inside-key-text").value);
    $("inside-key-text").value = "";
    look();
  });
  addEventListener("resize", () => { if (open) show(); });
  setInterval(() => { if (open && !document.hidden && $("inside-key").hidden) look(); }, kEvery);
}
