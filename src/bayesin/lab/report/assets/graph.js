// The network as a graph: its layers from top to bottom, and a rail of one colour along all that a group moves.

function graphSection(run) {
  const graph = run.graph;
  if (!graph || !graph.shapes.length) return null;
  const label = "The layers of the network, and which of them share groups of units";
  const drawn = vector("svg", { class: "graph", width: graph.width, height: graph.height, viewBox: `0 0 ${graph.width} ${graph.height}`, role: "img", "aria-label": label },
    graph.shapes.map(graphShape));
  return section("graph", "The network and its groups",
    lead("Layers in the order of the computation. Every colour is a group: its units may be permuted if they are in all layers at once that have a dot on its rail. What is grey is fixed. Layers that repeat, each with groups of its own, are drawn once."),
    el("div", { class: "panel" }, el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, drawn)));
}

function graphShape(shape) {
  const { kind, x, y, width = 0, height = 0 } = shape, style = present(shape.hue) ? `--hue:${Number(shape.hue)}` : null;
  const title = shape.title ? vector("title", {}, [shape.title]) : null, text = shape.text || "";
  if (kind === "line" || kind === "rail") return vector("path", { class: kind, d: `M${x} ${y}h${width}v${height}`, style }, [title]);
  if (kind === "dot") return vector("circle", { class: kind, cx: x, cy: y, r: 5, style }, [title]);
  if (kind === "frame") return vector("rect", { class: kind, x, y, width, height, rx: 6 }, []);
  if (kind === "chip") return vector("g", { class: style ? "chip" : "chip fixed", style }, [title, vector("rect", { x, y, width, height, rx: 4 }, []), vector("text", { x: x + 4, y: y + 13 }, [text])]);
  return vector("text", { class: kind === "name" ? "name" : "faint", x, y: y + 4 }, [text]);
}

// The name space of drawings reads like an address, and the page holds none; a browser knows it.
const DRAWINGS = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild.namespaceURI;

function vector(tag, attributes, children) {
  const node = document.createElementNS(DRAWINGS, tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}
