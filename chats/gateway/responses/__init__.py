"""The Responses endpoints: their fields, items, tools, events and stored responses."""
