/** Two surfaces with the same few calls: a canvas, and text of an SVG file. */

export const FONT = 'Inter, system-ui, -apple-system, "Segoe UI", sans-serif';

/** Draw on the 2D context of a canvas; coordinates are CSS pixels. */
export class CanvasSurface {
  constructor(context, ratio = 1) {
    this.context = context;
    this.ratio = ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  clear(width, height, colour) {
    this.context.clearRect(0, 0, width, height);
    if (colour) this.rect(0, 0, width, height, colour);
  }

  rect(x, y, width, height, colour, opacity = 1) {
    this.context.globalAlpha = opacity;
    this.context.fillStyle = colour;
    this.context.fillRect(x, y, width, height);
    this.context.globalAlpha = 1;
  }

  /** Draw lines through points [x0, y0, x1, y1, ...]; NaN begins a new line. */
  path(points, { colour, width = 1, dash = [], opacity = 1 }) {
    const { context } = this;
    context.beginPath();
    let drawing = false;
    for (let i = 0; i < points.length; i += 2) {
      const y = points[i + 1];
      if (y !== y) drawing = false;
      else if (drawing) context.lineTo(points[i], y);
      else {
        context.moveTo(points[i], y);
        drawing = true;
      }
    }
    Object.assign(context, { strokeStyle: colour, lineWidth: width, globalAlpha: opacity });
    context.lineJoin = "round";
    context.setLineDash(dash);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  /** Fill the polygon through points [x0, y0, ...]. */
  area(points, colour, opacity = 1) {
    const { context } = this;
    context.beginPath();
    for (let i = 0; i < points.length; i += 2) context.lineTo(points[i], points[i + 1]);
    context.globalAlpha = opacity;
    context.fillStyle = colour;
    context.fill();
    context.globalAlpha = 1;
  }

  dot(x, y, radius, colour, opacity = 1) {
    const { context } = this;
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.globalAlpha = opacity;
    context.fillStyle = colour;
    context.fill();
    context.globalAlpha = 1;
  }

  text(text, x, y, { colour, size = 11, align = "left", baseline = "middle", weight = 400 }) {
    const { context } = this;
    context.font = `${weight} ${size}px ${FONT}`;
    context.textAlign = align;
    context.textBaseline = baseline;
    context.fillStyle = colour;
    context.fillText(text, x, y);
  }

  measure(text, size = 11, weight = 400) {
    this.context.font = `${weight} ${size}px ${FONT}`;
    return this.context.measureText(text).width;
  }

  image(canvas, x, y, width, height) {
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(canvas, x, y, width, height);
  }

  clipped(x, y, width, height, draw) {
    this.context.save();
    this.context.beginPath();
    this.context.rect(x, y, width, height);
    this.context.clip();
    draw();
    this.context.restore();
  }
}

const escaped = (text) =>
  String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
const rounded = (value) => Math.round(100 * value) / 100;

/** Collect the elements of an SVG file. */
export class SvgSurface {
  constructor() {
    this.parts = [];
    this.ratio = 2;
    this.clips = 0;
    this.ruler = document.createElement("canvas").getContext("2d");
  }

  clear(width, height, colour) {
    if (colour) this.rect(0, 0, width, height, colour);
  }

  rect(x, y, width, height, colour, opacity = 1) {
    const [a, b, c, d] = [x, y, width, height].map(rounded);
    this.parts.push(
      `<rect x="${a}" y="${b}" width="${c}" height="${d}" fill="${colour}" opacity="${opacity}"/>`,
    );
  }

  path(points, { colour, width = 1, dash = [], opacity = 1 }) {
    let data = "", drawing = false;
    for (let i = 0; i < points.length; i += 2) {
      const y = points[i + 1];
      if (y !== y) {
        drawing = false;
        continue;
      }
      data += `${drawing ? "L" : "M"}${rounded(points[i])} ${rounded(y)}`;
      drawing = true;
    }
    this.parts.push(
      `<path d="${data}" fill="none" stroke="${colour}" stroke-width="${width}" ` +
        `stroke-linejoin="round" stroke-dasharray="${dash.join(" ")}" opacity="${opacity}"/>`,
    );
  }

  area(points, colour, opacity = 1) {
    const data = Array.from(points, rounded).join(" ");
    this.parts.push(`<polygon points="${data}" fill="${colour}" opacity="${opacity}"/>`);
  }

  dot(x, y, radius, colour, opacity = 1) {
    this.parts.push(
      `<circle cx="${rounded(x)}" cy="${rounded(y)}" r="${radius}" fill="${colour}" opacity="${opacity}"/>`,
    );
  }

  text(text, x, y, { colour, size = 11, align = "left", baseline = "middle", weight = 400 }) {
    const anchor = { left: "start", center: "middle", right: "end" }[align];
    const shift = { middle: 0.35, top: 0.8, bottom: -0.2, alphabetic: 0 }[baseline] * size;
    this.parts.push(
      `<text x="${rounded(x)}" y="${rounded(y + shift)}" fill="${colour}" font-size="${size}" ` +
        `font-weight="${weight}" text-anchor="${anchor}">${escaped(text)}</text>`,
    );
  }

  measure(text, size = 11, weight = 400) {
    this.ruler.font = `${weight} ${size}px ${FONT}`;
    return this.ruler.measureText(text).width;
  }

  image(canvas, x, y, width, height) {
    const [a, b, c, d] = [x, y, width, height].map(rounded);
    this.parts.push(
      `<image x="${a}" y="${b}" width="${c}" height="${d}" preserveAspectRatio="none" ` +
        `href="${canvas.toDataURL()}"/>`,
    );
  }

  clipped(x, y, width, height, draw) {
    const name = `clip${this.clips++}`;
    this.parts.push(
      `<clipPath id="${name}"><rect x="${x}" y="${y}" width="${width}" height="${height}"/></clipPath>`,
      `<g clip-path="url(#${name})">`,
    );
    draw();
    this.parts.push("</g>");
  }

  /** Return the file. */
  file(width, height) {
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" ` +
      `viewBox="0 0 ${width} ${height}" font-family="${escaped(FONT)}">${this.parts.join("\n")}</svg>\n`
    );
  }
}
