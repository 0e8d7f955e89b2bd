// The page's wiring: models, the key, questions and their answers, keys of the keyboard.

import { HttpError, ask, events, keepKey, keyOf } from "./api.js";
import { startInside } from "./inside.js";
import { watchMetrics } from "./metrics.js";
import { members, startSettings, systemPrompt } from "./settings.js";
import { drawAll, drawLast, handlers, keep, messages } from "./talk.js";

const $ = (id) => document.getElementById(id);
let running = null;  // AbortController of the answer under way

function say(text, bad = false) {
  $("state").textContent = text;
  $("state").classList.toggle("bad", bad);
}

// What goes to the server: reasoning and figures stay here.
function conversation() {
  const list = messages.filter((m) => !m.busy).map((m) => {
    const out = { role: m.role, content: m.content };
    if (m.tool_calls?.length) out.tool_calls = m.tool_calls;
    if (m.tool_call_id) out.tool_call_id = m.tool_call_id;
    return out;
  });
  const system = systemPrompt();
  return system ? [{ role: "system", content: system }, ...list] : list;
}

function addCalls(message, deltas) {
  message.tool_calls ??= [];
  for (const delta of deltas) {
    const one = message.tool_calls[delta.index] ??= { id: delta.id, type: "function", function: { name: "", arguments: "" } };
    one.function.name += delta.function?.name ?? "";
    one.function.arguments += delta.function?.arguments ?? "";
  }
}

function figures(begin, first, usage, reason) {
  if (!first) return "";
  const parts = [`first token ${((first - begin) / 1000).toFixed(2)} s`];
  const rest = (performance.now() - first) / 1000;
  if (usage) {
    parts.unshift(`${usage.prompt_tokens} in, ${usage.completion_tokens} out`);
    if (usage.completion_tokens > 1 && rest > 0.05) parts.push(`${((usage.completion_tokens - 1) / rest).toFixed(1)} tokens/s`);
  }
  if (reason === "length") parts.push("cut off by max tokens or the context's end");
  return parts.join(" · ");
}

async function receive(message, body) {
  const begin = performance.now();
  let first = 0, usage, reason = "";
  try {
    for await (const event of events("v1/chat/completions", body, running.signal)) {
      usage = event.usage ?? usage;
      const choice = event.choices?.[0];
      if (!choice) continue;
      const { delta = {} } = choice;
      reason = choice.finish_reason ?? reason;
      const text = delta.reasoning ?? delta.reasoning_content;
      if (!first && (delta.content || text || delta.tool_calls)) first = performance.now();
      message.reasoning += text ?? "";
      message.content += delta.content ?? "";
      if (delta.tool_calls) addCalls(message, delta.tool_calls);
      drawLast();
    }
  } finally {
    message.figures = figures(begin, first, usage, reason);
  }
}

async function answer() {
  let settings;
  try {
    settings = members();
  } catch (error) {
    return say(error.message, true);
  }
  const body = { model: $("model").value, messages: conversation(), stream: true, stream_options: { include_usage: true }, ...settings };
  const message = { role: "assistant", content: "", reasoning: "", busy: true };
  messages.push(message);
  running = new AbortController();
  $("send").hidden = true;
  $("stop").hidden = false;
  drawAll();
  say("");
  try {
    await receive(message, body);
  } catch (error) {
    message.error = error.name === "AbortError" ? "Stopped." : error.message;
    if (error instanceof HttpError && error.status === 401) askForKey("This key is not accepted.");
  }
  running = null;
  delete message.busy;
  $("send").hidden = false;
  $("stop").hidden = true;
  keep();
  drawAll();
}

function send(event) {
  event?.preventDefault();
  const text = $("question").value.trim();
  if (!text || running) return;
  const last = messages.at(-1);
  if (last?.role === "assistant" && !last.content && !last.tool_calls) messages.pop();  // it brought nothing but an error
  messages.push({ role: "user", content: text });
  $("question").value = "";
  grow();
  answer();
}

handlers.retry = () => {
  if (running || messages.at(-1)?.role !== "assistant") return;
  messages.pop();
  answer();
};
handlers.result = (call, text) => {
  if (running) return;
  messages.push({ role: "tool", tool_call_id: call.id, name: call.function.name, content: text });
  const asked = messages.findLast((m) => m.tool_calls);
  const open = asked.tool_calls.some((one) => !messages.some((m) => m.tool_call_id === one.id));
  open ? drawAll() : answer();
};

function grow() {
  const field = $("question");
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight + 2, innerHeight * 0.4)}px`;
}

function askForKey(error = "") {
  $("key-error").textContent = error;
  if (!$("key-dialog").open) $("key-dialog").showModal();
}

async function start() {
  try {
    const { data } = await (await ask("v1/models")).json();
    $("model").replaceChildren(...data.map((model) => new Option(model.id)));
    $("forget-key").hidden = !keyOf();
    const length = data[0]?.max_model_len;
    say(length ? `${length.toLocaleString()} tokens of context` : "");
  } catch (error) {
    if (error.status === 401) return askForKey(keyOf() ? "This key is not accepted." : "");
    say(error.message, true);
    setTimeout(start, 2000);  // it is starting, or gone for a while
  }
}

function cycleTheme() {
  const next = { "": "dark", dark: "light", light: "" }[document.documentElement.dataset.theme ?? ""];
  next ? localStorage.setItem("quire-theme", next) : localStorage.removeItem("quire-theme");
  applyTheme();
}
function applyTheme() {
  const theme = localStorage.getItem("quire-theme");
  theme ? document.documentElement.dataset.theme = theme : delete document.documentElement.dataset.theme;
}

function renew() {
  running?.abort();
  messages.length = 0;
  keep();
  drawAll();
  $("question").focus();
}

applyTheme();
startSettings();
startInside();
drawAll();
$("ask").addEventListener("submit", send);
$("question").addEventListener("input", grow);
$("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
});
$("stop").addEventListener("click", () => running?.abort());
$("new").addEventListener("click", renew);
$("theme").addEventListener("click", cycleTheme);
$("forget-key").addEventListener("click", () => { keepKey(""); start(); });
$("key-form").addEventListener("submit", () => { keepKey($("key").value); $("key").value = ""; start(); });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
  const shortcut = event.altKey && { n: renew, r: handlers.retry, s: () => $("show-settings").click(), i: () => $("show-inside").click() }[event.key];
  if (shortcut) { event.preventDefault(); shortcut(); }
});
start();
watchMetrics();
$("question").focus();
