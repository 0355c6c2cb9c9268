package httpapi

import (
	"net/url"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
)

// TestPagesOfAgents: whatever is deployed or deleted between two pages, each
// agent that was there all the time comes exactly once, by name.
func TestPagesOfAgents(t *testing.T) {
	f, srv := start(t, nil)
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
	rapid.Check(t, func(rt *rapid.T) {
		stay := map[holdfast.AgentName]bool{}
		first := rapid.SliceOfDistinct(rapid.SampledFrom(names), rapid.ID[string]).Draw(rt, "agents")
		f.mu.Lock()
		clear(f.agents)
		for _, n := range first {
			f.agents[holdfast.AgentName(n)] = holdfast.Agent{Name: holdfast.AgentName(n)}
			stay[holdfast.AgentName(n)] = true
		}
		f.mu.Unlock()
		seen := map[holdfast.AgentName]int{}
		last := holdfast.AgentName("")
		q := url.Values{"limit": {strconv.Itoa(rapid.IntRange(1, 4).Draw(rt, "limit"))}}
		for {
			resp, body := do(t, srv, request{"GET", "/v1/agents?" + q.Encode(), "", nil})
			if resp.StatusCode != 200 {
				rt.Fatalf("%d %s", resp.StatusCode, body)
			}
			page := decode[struct {
				Agents []holdfast.Agent `json:"agents"`
				Next   string           `json:"next"`
			}](t, body)
			for _, one := range page.Agents {
				if one.Name <= last {
					rt.Fatalf("%s after %s", one.Name, last)
				}
				last = one.Name
				seen[one.Name]++
			}
			if page.Next == "" {
				break
			}
			q.Set("cursor", page.Next)
			other := holdfast.AgentName(rapid.SampledFrom(names).Draw(rt, "other"))
			f.mu.Lock()
			if stay[other] {
				delete(f.agents, other)
				delete(stay, other)
			} else {
				f.agents[other] = holdfast.Agent{Name: other}
			}
			f.mu.Unlock()
		}
		for n := range stay {
			if seen[n] != 1 {
				rt.Fatalf("%s came %d times", n, seen[n])
			}
		}
	})
}

// TestTamperedCursors are refused by every list that has one.
func TestTamperedCursors(t *testing.T) {
	_, srv := start(t, nil)
	for _, c := range []string{"x", "czE", "YQ", "YWE=", "%00", "!!", "YSBi"} {
		resp, body := do(t, srv, request{"GET", "/v1/agents?cursor=" + url.QueryEscape(c), "", nil})
		wantProblem(t, resp, body, 400, holdfast.KindInvalid)
	}
	one := "/v1/sessions/" + string(createOne(t, srv))
	for _, c := range []string{"x", "-1", "9", "%00"} {
		resp, body := do(t, srv, request{"GET", one + "/checkpoints?cursor=" + c, "", nil})
		wantProblem(t, resp, body, 400, holdfast.KindInvalid)
	}
	for _, path := range []string{"/turns?after=-1", "/turns?after=x", "/events?after=-1", "/events?after=01", "/transcript?after=x"} {
		resp, body := do(t, srv, request{"GET", one + path, "", nil})
		wantProblem(t, resp, body, 400, holdfast.KindInvalid)
	}
}
