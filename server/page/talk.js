// The conversation: its messages, and how they look. A message of the model is drawn again as it grows.

import { markup } from "./markup.js";

const kStore = "quire-talk";
const list = document.getElementById("talk");
const hint = document.getElementById("hint");
const scroller = document.querySelector("main");
export const messages = JSON.parse(sessionStorage.getItem(kStore) || "[]");
export const handlers = { retry() {}, result() {} };  // main.js says what the buttons do

const element = (name, className, text) => Object.assign(document.createElement(name), { className, textContent: text ?? "" });

export function keep() {
  try {
    sessionStorage.setItem(kStore, JSON.stringify(messages));
  } catch {
    sessionStorage.removeItem(kStore);  // too long to survive a reload; it goes on all the same
  }
}

function button(text, title, action) {
  const made = Object.assign(element("button", "", text), { type: "button", title });
  made.addEventListener("click", action);
  return made;
}

function head(message, index) {
  const names = { user: "You", assistant: "Model", tool: `Result of ${message.name ?? "a call"}` };
  const who = element("div", "who", names[message.role]);
  if (message.busy) return who;
  if (message.content) who.append(button("Copy", "Copy the text", () => navigator.clipboard?.writeText(message.content)));
  if (message.role === "assistant" && index === messages.length - 1) {
    who.append(button("Retry", "Ask again (Alt+R)", () => handlers.retry()));
  }
  return who;
}

function thinking(message) {
  const details = element("details", "thinking");
  details.open = message.open ?? (message.busy && !message.content);
  details.append(element("summary", "", message.busy && !message.content ? "Thinking …" : "Thought"));
  details.append(element("div", "text", message.reasoning.trim()));
  details.addEventListener("click", () => setTimeout(() => { message.open = details.open; }));
  return details;
}

function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

function call(one, message) {
  const box = element("div", "call");
  box.append(element("strong", "", `calls ${one.function.name}`), element("pre", "", pretty(one.function.arguments)));
  const answered = messages.some((other) => other.role === "tool" && other.tool_call_id === one.id);
  if (message.busy || answered) return box;
  const form = document.createElement("form");
  const field = Object.assign(document.createElement("textarea"), { rows: 1, placeholder: "What it gave back" });
  field.setAttribute("aria-label", `Result of ${one.function.name}`);
  form.append(field, Object.assign(element("button", "", "Answer"), { type: "submit" }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    handlers.result(one, field.value);
  });
  box.append(form);
  return box;
}

function draw(message, index) {
  const item = element("li", `${message.role}${message.busy ? " busy" : ""}`);
  item.append(head(message, index));
  if (message.reasoning) item.append(thinking(message));
  if (message.content) {
    const text = element("div", "text");
    message.role === "assistant" ? text.append(markup(message.content)) : text.append(message.content);
    item.append(text);
  }
  for (const one of message.tool_calls ?? []) item.append(call(one, message));
  if (message.error) item.append(element("p", "error", message.error));
  if (message.figures) item.append(element("div", "figures", message.figures));
  return item;
}

const isAtEnd = () => scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
const toEnd = () => { scroller.scrollTop = scroller.scrollHeight; };

export function drawAll() {
  hint.hidden = messages.length > 0;
  list.replaceChildren(...messages.map(draw));
  toEnd();
}

let due = false;
// The last message, at most once a frame.
export function drawLast() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    if (!messages.length) return;
    const follow = isAtEnd();
    const item = draw(messages.at(-1), messages.length - 1);
    list.children.length < messages.length ? list.append(item) : list.lastElementChild.replaceWith(item);
    if (follow) toEnd();
  });
}
