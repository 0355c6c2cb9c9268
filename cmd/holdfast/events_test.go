package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestEventsInWords: events of agents and of the network are one readable line,
// and what does not decode is shown as it is.
func TestEventsInWords(t *testing.T) {
	for want, ev := range map[string]holdfast.Event{
		"claude 2.1.0 abc, tier injected, 3 of 4 turns loaded in 12 ms, not all had room: the file was cut": event(t, holdfast.EventAgentStarted,
			holdfast.AgentStarted{Runtime: "claude", AgentID: "abc", Version: "2.1.0", Tier: holdfast.TierInjected, Turns: 3, Of: 4, Truncated: true, Reason: "the file was cut", DurationMS: 12}),
		"2 entries, 9 bytes of the transcript of state 1": event(t, holdfast.EventAgentMirrored,
			holdfast.AgentMirrored{Generation: 1, Entries: []json.RawMessage{json.RawMessage(`{"a":1}`), json.RawMessage(`{}`)}}),
		"claude abc put aside: empty, kept in /home/agent/q/1": event(t, holdfast.EventAgentQuarantined,
			holdfast.AgentQuarantined{Runtime: "claude", AgentID: "abc", Reason: "empty", Kept: "/home/agent/q/1"}),
		"proxy: CONNECT example.com:443, 7 bytes out, 9 in, 5 ms, rule *.com": event(t, holdfast.EventEgressAllowed,
			holdfast.EgressDecision{Via: "proxy", Method: "CONNECT", Host: "example.com", Port: 443, Rule: "*.com", Sent: 7, Received: 9, DurationMS: 5}),
		"model: POST api/v1/x, 3 times: not granted": event(t, holdfast.EventEgressDenied,
			holdfast.EgressDecision{Via: "model", Method: "POST", Host: "api", Path: "/v1/x", Reason: "not granted", Count: 3}),
		"proxy: CONNECT [::1]:1: no \\u001b[31m]0;x": event(t, holdfast.EventEgressDenied,
			holdfast.EgressDecision{Via: "proxy", Method: "CONNECT", Host: "::1", Port: 1, Reason: "no \x1b[31m]0;x"}),
		`{"entries":3}`: {Type: holdfast.EventAgentMirrored, Data: json.RawMessage(`{"entries":3}`)},
		`{"parts":[{"type":"text","text":"hi"}]}`: event(t, holdfast.EventMessageUser, holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "hi"}}}),
	} {
		var out bytes.Buffer
		if err := (&env{stdout: &out}).event(ev, false); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.Contains(got, string(ev.Type)) || !strings.HasSuffix(strings.TrimSpace(got), want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: %q, not %q", ev.Type, got, want)
		}
	}
}

// TestSessionShowTellsOfAgents: what agents keep of themselves is shown.
func TestSessionShowTellsOfAgents(t *testing.T) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/agents") {
			_, _ = io.WriteString(w, `{"agents":[{"generation":2,"runtime":"claude","version":"2.1.0","agent_id":"a\u001b[2Jb","health":"current","turns":3,"upto":40,"call_id":"c","box_id":"s-1"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"session":{"id":"`+id+`","status":"active"}}`)
	}))
	defer srv.Close()
	vars := map[string]string{"HOLDFAST_URL": srv.URL, "HOLDFAST_TOKEN": "t"}
	code, out, errs := runCLI(t, vars, "", "session", "show", id)
	if code != 0 || !strings.Contains(out, "agent state  2: claude 2.1.0 a\\u001b[2Jb, current, knows 3 turns up to event 40, call c in box s-1\n") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	code, out, errs = runCLI(t, vars, "", "session", "show", id, "--json")
	if code != 0 || !strings.Contains(out, `"agents":[{"generation":2`) {
		t.Errorf("%d %q %q", code, out, errs)
	}
}
