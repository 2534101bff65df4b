"""Attributes that rendered Markdown may contain."""

ALLOWED_ATTRIBUTES = {
    *("href", "rel", "target", "start", "class", "dir", "type", "tabindex", "role", "scope"),
    *("aria-label", "disabled", "checked", "value"),
    *("display", "displaystyle", "scriptlevel", "stretchy", "symmetric", "movablelimits", "form"),
    *("lspace", "rspace", "minsize", "maxsize", "width", "height", "depth", "voffset"),
    *("accent", "accentunder", "linethickness", "mathvariant", "notation"),
}
