import { useChat } from "@ai-sdk/react";
import {
  DefaultChatTransport,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
} from "ai";
import { useState } from "react";
import { createRoot } from "react-dom/client";

const api = "/api/v1/ui-chats";
const transport = new DefaultChatTransport({ api });
// The address keeps the chat's id, so that a reload finds it again.
const id = location.hash.slice(1) || crypto.randomUUID();
location.hash = id;

function textOf(message) {
  return message.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

function requestsOf(message) {
  return message.parts.filter((part) => isToolUIPart(part) && part.state === "approval-requested");
}

function callsOf(message) {
  return message.parts.filter((part) => isToolUIPart(part) && part.state !== "approval-requested");
}

function Chat({ stored }) {
  const { messages, sendMessage, regenerate, stop, status, error, addToolApprovalResponse } =
    useChat({
      id,
      transport,
      messages: stored,
      resume: stored.length > 0,
      // The answers to requests for consent are sent once each request has one.
      sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    });
  const [edited, setEdited] = useState(null);
  const [text, setText] = useState("");
  const isBusy = status === "submitted" || status === "streaming";

  function submit(event) {
    event.preventDefault();
    sendMessage(edited ? { text, messageId: edited } : { text });
    setEdited(null);
    setText("");
  }

  async function stopReply() {
    // `stop` alone ends only this connection.
    await fetch(`${api}/${id}/stream`, { method: "DELETE" });
    stop();
  }

  return (
    <>
      {messages.map((message) => (
        <article key={message.id} className={message.role}>
          <p style={{ whiteSpace: "pre-wrap" }}>{textOf(message)}</p>
          {callsOf(message).map(({ toolCallId, type, state, input }, at) => (
            <p key={`${toolCallId}-${at}`} className="call" data-state={state}>
              {type.replace("tool-", "")} {JSON.stringify(input)}{" "}
              {state.startsWith("input") ? "…" : state.replace("output-", "")}
            </p>
          ))}
          {requestsOf(message).map(({ type, input, approval }) => (
            <fieldset key={approval.id}>
              <legend>{type.replace("tool-", "")}</legend>
              <pre>{JSON.stringify(input)}</pre>
              {[true, false].map((approved) => (
                <button
                  key={String(approved)}
                  onClick={() => addToolApprovalResponse({ id: approval.id, approved })}
                >
                  {approved ? "Allow" : "Deny"}
                </button>
              ))}
            </fieldset>
          ))}
          {message.role === "user" ? (
            <button onClick={() => (setEdited(message.id), setText(textOf(message)))}>Edit</button>
          ) : (
            <button disabled={isBusy} onClick={() => regenerate({ messageId: message.id })}>
              Regenerate
            </button>
          )}
        </article>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={submit}>
        <textarea aria-label="Message" value={text} onChange={(e) => setText(e.target.value)} />
        <button disabled={isBusy || !text.trim()}>{edited ? "Save" : "Send"}</button>
        {isBusy && <button type="button" onClick={stopReply}>Stop</button>}
      </form>
    </>
  );
}

const answer = await fetch(`${api}/${id}`);
const { messages } = answer.ok ? await answer.json() : { messages: [] };
createRoot(document.getElementById("root")).render(<Chat stored={messages} />);
