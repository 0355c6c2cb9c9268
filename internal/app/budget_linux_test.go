package app_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
)

// greedyAgent is an agent that calls the model by itself: once above its budget, then
// for an absurdly long answer and, while that call is in progress, three times above
// its budget again. It writes the status of each answer into the file calls.
const greedyAgent = `call() {
	exec 3<>/dev/tcp/127.0.0.1/3129
	body='{"model":"m","max_completion_tokens":'$1',"messages":[{"role":"user","content":"x"}]}'
	printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" >&3
	read -r _ status _ <&3
	cat <&3 > /dev/null
	echo "$1 $status" >> /workspace/calls
}
while IFS= read -r l; do
	[[ $l =~ \"id\":([0-9]+) ]]; id=${BASH_REMATCH[1]}
	case $l in
	*'"initialize"'*) r='{"protocolVersion":1}' ;;
	*'"session/new"'*) r='{"sessionId":"s"}' ;;
	*)
		call 50000
		call 9223372036854775807 &
		sleep 0.2
		for i in 1 2 3; do call 50000 & done
		wait
		r='{"stopReason":"end_turn","usage":{"inputTokens":-9223372036854775808,"outputTokens":-1}}' ;;
	esac
	echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$r}"
done`

// TestHZ24_AnAbsurdCallOpensNoBudget: an agent in a box may send its model any request;
// while a call of 2^63-1 tokens is in progress, the others are refused as before.
func TestHZ24_AnAbsurdCallOpensNoBudget(t *testing.T) {
	var asked atomic.Int64
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(raw), "9223372036854775807") {
			select {
			case <-time.After(500 * time.Millisecond):
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, `{"choices":[],"usage":{"prompt_tokens":1366,"completion_tokens":50000}}`)
	}))
	t.Cleanup(provider.Close)
	t.Setenv("OPENAI_API_KEY", "sk-of-this-test")
	cfg := settings(t, "local")
	cfg.Models.OpenAI.URL = provider.URL
	cfg.Models.Prices = []string{"openai/m=2/6"}
	cfg.ACP = map[string]config.ACPAgent{"greedy": {Command: []string{"/bin/bash", "-c", greedyAgent}}}
	c, _ := serve(t, cfg)
	s, err := c.CreateSession(t.Context(), holdfast.CreateSession{
		Runtime: "acp:greedy", Model: "openai/m", Budget: &holdfast.Budget{USD: 0.01, Tokens: 10000},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	turn(t, c, s.ID, "go")
	calls := strings.Split(strings.TrimSpace(execute(t, c, s.ID, "sort calls")), "\n")
	if got := strings.Join(calls, ", "); got != "50000 403, 50000 403, 50000 403, 50000 403, 9223372036854775807 400" {
		t.Errorf("the calls were answered with %s", got)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d calls reached the provider", n)
	}
	if s, err = c.Session(t.Context(), s.ID); err != nil || s.Spent.Tokens() != 0 || s.Spent.CostMicroUSD != 0 {
		t.Errorf("%+v %v", s.Spent, err)
	}
}
