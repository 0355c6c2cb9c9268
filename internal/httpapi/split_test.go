package httpapi

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestASH3_TextSplitOverReads: a body whose characters are cut between packets
// arrives byte for byte.
func TestASH3_TextSplitOverReads(t *testing.T) {
	_, srv := start(t, nil)
	id := createOne(t, srv)
	const text = "grüße, 世界 🚀 e\u0301 \u202e end"
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"text":"` + text + `"}`
	head := fmt.Sprintf("POST /v1/sessions/%s/turns HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
		id, testToken, len(body))
	for _, b := range []byte(head + body) {
		if _, err := conn.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%+v, %v", resp, err)
	}
	resp.Body.Close()
	_, log := do(t, srv, request{"GET", "/v1/sessions/" + string(id) + "/events?type=message.user", "", nil})
	page := decode[eventPage](t, log)
	var msg holdfast.UserMessage
	if len(page.Events) != 1 || page.Events[0].Decode(&msg) != nil || msg.Text() != text {
		t.Errorf("the log has %s", log)
	}
}

// TestASH3_BlocksAreRefused: a message is a text or parts that are texts. Anything else is
// refused, not flattened or dropped, and nothing of the message is in the log.
func TestASH3_BlocksAreRefused(t *testing.T) {
	_, srv := start(t, nil)
	id := createOne(t, srv)
	for _, body := range []string{
		`{"text":[{"type":"text","text":"x"}]}`, `{"content":[{"type":"text","text":"x"}]}`,
		`{"text":"x","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]}`,
		`{"parts":[{"type":"text","text":"x"},{"type":"image"}]}`, `{"parts":[{"text":"x"}]}`, `{"parts":[]}`, `{"text":"x","parts":[{"type":"text","text":"x"}]}`,
		`{"parts":[{"type":"text","text":"x","tool_use_id":"u"}]}`, `{"parts":[{"type":"image","source":{"data":"AA=="}}]}`,
	} {
		resp, said := do(t, srv, request{"POST", "/v1/sessions/" + string(id) + "/turns", body, nil})
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(said), `"invalid"`) ||
			strings.Contains(body, `"image"}`) && !strings.Contains(string(said), "holdfast files put") {
			t.Errorf("%s: %s %s", body, resp.Status, said)
		}
	}
	_, log := do(t, srv, request{"GET", "/v1/sessions/" + string(id) + "/events?type=message.user", "", nil})
	if page := decode[eventPage](t, log); len(page.Events) != 0 {
		t.Errorf("the log has %s", log)
	}
}

// TestASH4_SessionsBringNoLaunchOfTheirOwn: prompt, tools, MCP servers and credentials come
// with the agent's version or from the server. In a request they are refused by their
// names, not dropped.
func TestASH4_SessionsBringNoLaunchOfTheirOwn(t *testing.T) {
	_, srv := start(t, nil)
	for _, field := range []string{`"system_prompt":"x"`, `"tools":["Bash"]`, `"allowed_tools":["Bash"]`, `"mcp_servers":{}`, `"credential_id":"x"`} {
		resp, said := do(t, srv, request{"POST", "/v1/sessions", "{" + field + "}", nil})
		name, _, _ := strings.Cut(strings.TrimPrefix(field, `"`), `"`)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(said), name) {
			t.Errorf("%s: %s %s", field, resp.Status, said)
		}
	}
	_, list := do(t, srv, request{"GET", "/v1/sessions", "", nil})
	if page := decode[holdfast.SessionPage](t, list); len(page.Sessions) != 0 {
		t.Errorf("there are sessions: %s", list)
	}
}
