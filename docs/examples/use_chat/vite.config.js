import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The server adds the key, so that no browser has it.
const { PALIMPSEST_URL = "http://127.0.0.1:8000", PALIMPSEST_KEY } = process.env;
const headers = { Authorization: `Bearer ${PALIMPSEST_KEY}` };
const proxy = { "/api/v1/ui-chats": { target: PALIMPSEST_URL, headers } };

export default defineConfig({ plugins: [react()], server: { proxy }, preview: { proxy } });
