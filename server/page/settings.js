// The panel of sampling controls; what it holds survives a reload of the tab.

const kStore = "quire-settings";
const form = document.getElementById("controls");
const numbers = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty"];
const error = document.getElementById("controls-error");

function keep() {
  sessionStorage.setItem(kStore, JSON.stringify(Object.fromEntries(new FormData(form))));
  try {
    members();
    error.textContent = "";
  } catch (e) {
    error.textContent = e.message;
  }
}

function tools() {
  const text = form.elements.tools.value.trim();
  if (!text) return undefined;
  let list;
  try {
    list = JSON.parse(text);
  } catch (e) {
    throw new Error(`Tools: ${e.message}`);
  }
  if (!Array.isArray(list)) throw new Error("Tools: a JSON list is needed.");
  return list.length ? list : undefined;
}

export const systemPrompt = () => form.elements.system.value.trim();

// Members of a request. Empty fields are left to the server. Throws with what is wrong.
export function members() {
  const body = {};
  for (const name of numbers) {
    const field = form.elements[name];
    if (!field.checkValidity()) throw new Error(`${field.parentElement.firstChild.textContent}: ${field.validationMessage}`);
    if (field.value !== "") body[name] = Number(field.value);
  }
  const stop = form.elements.stop.value.split("\n").filter((line) => line !== "");
  if (stop.length) body.stop = stop;
  const thinking = form.elements.thinking.value;
  if (thinking) body.chat_template_kwargs = { enable_thinking: thinking === "true" };
  const list = tools();
  if (list) body.tools = list;
  return body;
}

export function startSettings() {
  const kept = JSON.parse(sessionStorage.getItem(kStore) || "{}");
  for (const [name, value] of Object.entries(kept)) if (form.elements[name]) form.elements[name].value = value;
  form.addEventListener("input", keep);
  form.addEventListener("reset", () => setTimeout(keep));
  form.addEventListener("submit", (event) => event.preventDefault());
  const panel = document.getElementById("settings");
  const button = document.getElementById("show-settings");
  const show = (open) => {
    panel.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    if (open) form.elements.system.focus();
    else button.focus();
  };
  button.addEventListener("click", () => show(panel.hidden));
  panel.addEventListener("keydown", (event) => event.key === "Escape" && show(false));
}
