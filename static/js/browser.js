// Browser settings for the styles and the server.

document.documentElement.classList.add("has-scripts");

// The server shows times in this zone.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const secure = location.protocol === "https:" ? "; secure" : "";
if (zone) document.cookie = `zone=${zone}; path=/; max-age=31536000; samesite=lax${secure}`;
