// The line of figures: /metrics read every second while the tab is seen, and what changed since.

import { ask } from "./api.js";

const kEvery = 1000;
const kWindow = 60;  // readings that latencies look back over
const kDrawn = 120;
const readings = [];
const rates = [];
const show = (id, text) => { document.getElementById(id).textContent = text; };

// Sums over engines and labels; histograms keep their buckets by upper bound.
export function parse(text) {
  const values = new Map();
  const buckets = new Map();
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!found) continue;
    const [, name, labels, number] = found;
    values.set(name, (values.get(name) || 0) + Number(number));
    const bound = labels && /(?:^|,)le="([^"]+)"/.exec(labels);
    if (!bound) continue;
    if (!buckets.has(name)) buckets.set(name, new Map());
    const one = buckets.get(name);
    one.set(bound[1], (one.get(bound[1]) || 0) + Number(number));
  }
  return { time: performance.now() / 1000, values, buckets };
}

// Of what came between two readings, by linear interpolation inside a bucket; undefined: nothing came.
export function quantile(q, name, now, before) {
  const all = now.buckets.get(`${name}_bucket`);
  if (!all) return undefined;
  const old = before?.buckets.get(`${name}_bucket`);
  const steps = [...all].map(([bound, count]) => [bound === "+Inf" ? Infinity : Number(bound), count - (old?.get(bound) || 0)]).sort((a, b) => a[0] - b[0]);
  const total = steps.at(-1)[1];
  if (!(total > 0)) return undefined;
  let low = 0, below = 0;
  for (const [bound, count] of steps) {
    if (count >= q * total) {
      if (bound === Infinity) return low;
      return low + (bound - low) * (q * total - below) / Math.max(count - below, 1e-9);
    }
    [low, below] = [bound, count];
  }
  return low;
}

const duration = (s) => s === undefined ? "–" : s >= 0.9995 ? `${s.toFixed(2)} s` : s >= 0.01 ? `${Math.round(s * 1000)} ms` : `${(s * 1000).toFixed(1)} ms`;
const rate = (name, now, before) => before ? Math.max(0, ((now.values.get(name) || 0) - (before.values.get(name) || 0)) / (now.time - before.time)) : 0;
const rounded = (n) => n >= 100 ? Math.round(n).toLocaleString() : n >= 10 ? n.toFixed(0) : n.toFixed(1);

function draw() {
  const most = Math.max(1, ...rates);
  const points = rates.map((r, i) => `${120 - (rates.length - 1 - i)},${(23 - 22 * r / most).toFixed(2)}`);
  document.querySelector("#spark polyline").setAttribute("points", points.join(" "));
}

function display(now) {
  const before = readings.at(-1);
  const old = readings[0];
  const value = (name) => now.values.get(name) || 0;
  const out = rate("vllm:generation_tokens_total", now, before);
  rates.push(out);
  if (rates.length > kDrawn) rates.shift();
  show("m-out", rounded(out));
  show("m-in", rounded(rate("vllm:prompt_tokens_total", now, before)));
  show("m-running", value("vllm:num_requests_running"));
  show("m-waiting", value("vllm:num_requests_waiting"));
  for (const [id, name] of [["m-ttft", "vllm:time_to_first_token_seconds"], ["m-gap", "vllm:inter_token_latency_seconds"]]) {
    show(id, [0.5, 0.95].map((q) => duration(quantile(q, name, now, old))).join(" / "));
  }
  show("m-kv", `${(100 * value("vllm:kv_cache_usage_perc")).toFixed(1)} %`);
  const asked = value("vllm:prefix_cache_queries_total");
  show("m-hits", asked ? `${(100 * value("vllm:prefix_cache_hits_total") / asked).toFixed(0)} %` : "–");
  draw();
  readings.push(now);
  if (readings.length > kWindow) readings.shift();
}

export async function watchMetrics() {
  const section = document.getElementById("meters");
  while (true) {
    if (!document.hidden) {
      try {
        display(parse(await (await ask("metrics")).text()));
        section.hidden = false;
        section.title = "";
      } catch (e) {
        if (e.status === 401 || e.status === 404) section.hidden = true;  // a key of its own, or a proxy keeps it back
        section.title = e.message;
      }
    }
    await new Promise((resolve) => setTimeout(resolve, kEvery));
  }
}
