// The server's API as the page uses it: the key, requests, streams. Addresses are relative, so that the page also works behind a
// proxy that puts a path in front.

const kKey = "quire-key";
export const keyOf = () => sessionStorage.getItem(kKey) || "";
export const keepKey = (key) => key ? sessionStorage.setItem(kKey, key) : sessionStorage.removeItem(kKey);

const kInsideKey = "quire-admin-key";
export const keepInsideKey = (key) => sessionStorage.setItem(kInsideKey, key);

export class HttpError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function words(reply) {
  const text = await reply.text();
  try {
    const body = JSON.parse(text);
    const error = body.error ?? body;
    return (typeof error === "string" ? error : error.message) || text;
  } catch {
    return text.slice(0, 500) || reply.statusText;
  }
}

// The reply, or HttpError with the server's own words.
export async function ask(path, options = {}, key = keyOf()) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  const reply = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
  if (!reply.ok) throw new HttpError(reply.status, await words(reply));
  return reply;
}

// The same of /debug, which may have a key of its own.
export const askInside = (path) => ask(path, {}, sessionStorage.getItem(kInsideKey) || keyOf());

// The events of a stream as objects, until [DONE]. Throws where an event is an error, or the stream breaks off.
export async function* events(path, body, signal) {
  const reply = await ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) throw new Error("The answer broke off.");
    const lines = (held + value).split("\n");
    held = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message ?? String(event.error));
      yield event;
    }
  }
}
