"""The request fields that are passed to the provider, such as sampling options.

This is an allow-list. A block-list would miss some of the hundreds of names that servers and
libraries use for selecting a provider or its key, which only the operator configures.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

# OpenAI's fields, and those of compatible servers.
CHAT = frozenset(
    {
        # OpenAI
        *("frequency_penalty", "logit_bias", "moderation", "parallel_tool_calls", "prediction"),
        *("presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort"),
        *("response_format", "safety_identifier", "seed", "service_tier", "stop", "temperature"),
        *("tool_choice", "top_p", "user", "verbosity", "web_search_options"),
        # Thinking, by several names
        *("chat_template_kwargs", "enable_thinking", "include_reasoning", "reasoning"),
        *("reasoning_format", "reasoning_split", "thinking", "thinking_budget", "think"),
        # vLLM, SGLang, TGI, llama.cpp, Ollama, LM Studio, Mistral, OpenRouter
        *("add_generation_prompt", "allowed_token_ids", "bad_words", "best_of", "cache_prompt"),
        *("continue_final_message", "custom_params", "documents", "dry_allowed_length"),
        *("dry_base", "dry_multiplier", "dry_penalty_last_n", "dry_sequence_breakers"),
        *("dynatemp_exponent", "dynatemp_range", "ebnf", "echo", "grammar", "guided_choice"),
        *("guided_decoding_backend", "guided_grammar", "guided_json", "guided_regex"),
        *("ignore_eos", "include_stop_str_in_output", "json_schema", "length_penalty"),
        *("min_p", "min_tokens", "mirostat", "mirostat_eta", "mirostat_tau", "n_keep"),
        *("n_predict", "no_stop_trim", "prompt_mode", "random_seed", "regex"),
        *("repeat_last_n", "repeat_penalty", "repetition_penalty", "safe_prompt", "samplers"),
        *("separate_reasoning", "skip_special_tokens", "spaces_between_special_tokens"),
        *("stop_regex", "stop_token_ids", "stream_reasoning", "structured_outputs", "tfs_z"),
        *("top_a", "top_k", "top_n_sigma", "truncate_prompt_tokens", "typical_p"),
        *("use_beam_search", "xtc_probability", "xtc_threshold"),
    }
)
# Allowed only in requests with tools.
OF_TOOLS = frozenset({"parallel_tool_calls", "tool_choice"})
EMBEDDINGS = frozenset(
    {
        *("dimensions", "encoding_format", "input", "model", "user"),
        *("add_special_tokens", "embedding_type", "embedding_types", "input_type"),
        *("late_chunking", "normalize", "output_dimension", "output_dtype", "priority"),
        *("prompt_name", "task", "task_type", "truncate", "truncate_prompt_tokens"),
    }
)
# Matches names that select a destination or credentials, or that run something else.
_ROUTING = re.compile(
    r"(?:^|[_\-.])(?:urls?|uri|bases?|hosts?|endpoints?|prox(?:y|ies)|headers?|callbacks?"
    r"|guardrails?|ssl|tls|certs?|presets?|routes?|routers?|routing|deployments?|organi[sz]ations?"
    r"|projects?|regions?|accounts?|webhooks?|plugins?|transports?|transforms?|timeouts?|retries"
    r"|fallbacks?|providers?|credentials?|passwords?|secrets?|auth|authorization)(?:$|[_\-.])"
    r"|(?:api|access|private|secret)_?key|^user_config$"
    r"|^(?:aws|azure|litellm|mock|vertex|openai|anthropic|bedrock)_",
    re.IGNORECASE,
)
# Limits for the names reported in a header.
MOST_NAMED, LONGEST_NAME = 20, 64


def select_provider_fields(
    fields: Mapping[str, Any], *, allowed: frozenset[str] = CHAT
) -> dict[str, Any]:
    return {name: said for name, said in fields.items() if name in allowed}


def is_routing(name: str, *, allowed: frozenset[str] = CHAT) -> bool:
    """Return True if a field would select a provider. Such fields are refused."""
    return name not in allowed and bool(_ROUTING.search(name))


def list_dropped_fields(
    fields: Iterable[str], *, allowed: frozenset[str] = CHAT
) -> tuple[str, ...]:
    """Return the names of dropped fields that fit into a header."""
    names = (name for name in fields if name not in allowed)
    fit = [n for n in names if n.isascii() and n.isidentifier() and len(n) <= LONGEST_NAME]
    return tuple(fit[:MOST_NAMED])


def build_dropped_headers(
    names: Iterable[str], *, tools: Iterable[str] = (), items: Iterable[str] = ()
) -> dict[str, str]:
    """Return the headers that list the dropped fields, and types of tools and items, if any."""
    lists = {"Parameters": names, "Tools": tools, "Items": items}
    values = {kind: ", ".join(list(listed)[:MOST_NAMED]) for kind, listed in lists.items()}
    return {f"X-Context-{kind}-Left-Out": value for kind, value in values.items() if value}
