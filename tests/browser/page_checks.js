// Every text that can be seen whose contrast with what is behind it is below WCAG 2 AA.
function channel(c) { c /= 255; return c <= 0.04045 ? c / 12.92 : Math.pow((c + 0.055) / 1.055, 2.4); }
function luminance(rgb) { return 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]); }
function parts(text) { const n = text.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; }
function behind(element) {
  for (let e = element; e; e = e.parentElement) {
    const colour = parts(getComputedStyle(e).backgroundColor);
    if (colour[3] === 1) return colour;
    if (colour[3] > 0) throw new Error("half transparent " + e.tagName);
  }
  throw new Error("nothing behind " + element.tagName);
}
const poor = [];
let number = 0;
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const text = walk.currentNode.textContent.trim();
  const element = walk.currentNode.parentElement;
  if (!text || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
  if (!element.checkVisibility()) continue;
  const style = getComputedStyle(element);
  const [a, b] = [luminance(parts(style.color)), luminance(behind(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const points = parseFloat(style.fontSize) * 0.75;
  const large = points >= 18 || (points >= 14 && Number(style.fontWeight) >= 700);
  number += 1;
  if (ratio < (large ? 3 : 4.5)) poor.push([text.slice(0, 40), ratio]);
}
return { number, poor };
