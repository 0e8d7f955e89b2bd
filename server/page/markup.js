// The little of Markdown that answers use, as elements: fenced and inline code, bold, paragraphs. Nothing that a model writes
// becomes HTML.

const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });

// `code` and **bold** inside a paragraph.
function inline(parent, text) {
  for (const part of text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/)) {
    if (part.length > 2 && part.startsWith("`") && part.endsWith("`")) parent.append(element("code", part.slice(1, -1)));
    else if (part.length > 4 && part.startsWith("**") && part.endsWith("**")) parent.append(element("strong", part.slice(2, -2)));
    else if (part) parent.append(part);
  }
}

export function markup(text) {
  const out = document.createDocumentFragment();
  text.split(/^```([^\n`]*)$/m).forEach((part, index) => {
    // Split gives text, language, code, language of the closing fence (empty), text, …
    const inCode = index % 4 === 2;
    if (index % 2 === 1) return;
    if (inCode) {
      const pre = document.createElement("pre");
      pre.tabIndex = 0;  // it scrolls sideways, so the keyboard must reach it
      pre.append(element("code", part.replace(/^\n|\n$/g, "")));
      out.append(pre);
      return;
    }
    for (const paragraph of part.split(/\n{2,}/)) {
      const trimmed = paragraph.replace(/^\n+|\n+$/g, "");
      if (!trimmed) continue;
      const p = document.createElement("p");
      inline(p, trimmed);
      out.append(p);
    }
  });
  return out;
}
