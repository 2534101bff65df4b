// What the styles and the server are to know of the browser.

document.documentElement.classList.add("has-scripts");

// The server writes times in the reader's zone once it knows it.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const secure = location.protocol === "https:" ? "; secure" : "";
if (zone) document.cookie = `zone=${zone}; path=/; max-age=31536000; samesite=lax${secure}`;
