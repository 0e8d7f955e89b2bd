// Draws openapi.json: every path with its members and its answers.

const contract = await (await fetch("openapi.json")).json();
const element = (name, text) => Object.assign(document.createElement(name), { textContent: text ?? "" });

const resolve = (node) => {
  while (node?.$ref) node = node.$ref.slice(2).split("/").reduce((at, key) => at[key], contract);
  return node ?? {};
};

// The members of a schema, those of all that it is made of included.
function members(schema) {
  schema = resolve(schema);
  const own = Object.entries(schema.properties ?? {}).map(([name, value]) => ({ name, value, needed: schema.required?.includes(name) }));
  return (schema.allOf ?? []).flatMap(members).concat(own);
}

function typeOf(schema) {
  const named = schema.$ref?.split("/").pop();
  if (named) return named;
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  const type = [schema.type ?? "any"].flat().join(" | ");
  return schema.items ? `${type} of ${typeOf(schema.items)}` : type;
}

function limits(schema) {
  const said = [];
  if ("default" in schema) said.push(`default ${JSON.stringify(schema.default)}`);
  if ("minimum" in schema) said.push(`≥ ${schema.minimum}`);
  if ("exclusiveMinimum" in schema) said.push(`> ${schema.exclusiveMinimum}`);
  if ("maximum" in schema) said.push(`≤ ${schema.maximum}`);
  if (schema.description) said.push(schema.description);
  return said.join("; ");
}

function table(schema) {
  const out = document.createElement("table");
  for (const { name, value, needed } of members(schema)) {
    const row = out.insertRow();
    row.insertCell().append(element("code", name), needed ? " (needed)" : "");
    row.insertCell().textContent = typeOf(value);
    row.insertCell().textContent = limits(value);
  }
  return out;
}

function draw(path, method, operation) {
  const box = element("details");
  const head = element("summary");
  head.append(element("b", method.toUpperCase()), element("code", path), " ", element("span", operation.summary));
  box.append(head);
  const request = operation.requestBody?.content?.["application/json"]?.schema;
  if (request) box.append(element("h2", "Request"), table(request));
  for (const [status, reference] of Object.entries(operation.responses)) {
    const response = resolve(reference);
    box.append(element("h2", `Answer ${status}`), element("p", response.description));
    for (const [type, { schema }] of Object.entries(response.content ?? {})) box.append(element("p", type), table(schema));
  }
  return box;
}

const list = document.getElementById("paths");
for (const [path, methods] of Object.entries(contract.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    if (operation.responses) list.append(draw(path, method, operation));
  }
}
