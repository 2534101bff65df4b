// Paste and drop: attaches files, and sets the direction of long texts.

import { attach } from "./attachments.js";
import { box } from "./page.js";

// With dir="auto" the browser scans the whole box after each pasted line.
const longText = 10_000;
const rightToLeft = /[\p{sc=Adlam}\p{sc=Arabic}\p{sc=Hebrew}\p{sc=Mandaic}\p{sc=Nko}\p{sc=Samaritan}\p{sc=Syriac}\p{sc=Thaana}]/u;

const hasFiles = (data) => [...(data?.types ?? [])].includes("Files");
const isForFiles = (target) => Boolean(target.closest?.("input[type=file]"));

document.addEventListener("paste", (event) => {
  const data = event.clipboardData;
  // Spreadsheets and word processors add a picture of the copied text.
  if (event.target !== box() || !hasFiles(data) || data.getData("text/plain")) return;
  event.preventDefault();
  attach([...data.files]);
});
// Otherwise the browser would leave the page to show the file.
document.addEventListener("dragover", (event) => {
  if (box() && hasFiles(event.dataTransfer) && !isForFiles(event.target)) event.preventDefault();
});
document.addEventListener("drop", (event) => {
  if (!box() || !hasFiles(event.dataTransfer) || isForFiles(event.target)) return;
  event.preventDefault();
  attach([...event.dataTransfer.files]);
});

const isAutomatic = (area) => area.localName === "textarea" && (area.dir === "auto" || area.dataset.dir === "auto");

function direct(area, text) {
  const [letter] = text.match(/\p{L}/u) ?? [];
  area.dataset.dir = "auto";
  area.dir = letter && rightToLeft.test(letter) ? "rtl" : "ltr";
}

// Runs before the text is inserted.
document.addEventListener("beforeinput", ({ target, data, dataTransfer }) => {
  if (!isAutomatic(target)) return;
  const added = data ?? dataTransfer?.getData("text/plain") ?? "";
  if (target.value.length + added.length > longText) direct(target, target.value.trim() ? target.value : added);
});
document.addEventListener("input", ({ target }) => {
  if (!isAutomatic(target)) return;
  if (target.value.length > longText) direct(target, target.value);
  else target.dir = "auto";
});
