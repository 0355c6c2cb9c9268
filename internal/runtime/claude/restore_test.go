package claude

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/retell"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/transcript"
)

// TestTheBestTierIsPlanned: each rung of the ladder, with what it does to what was
// there, and what its receipt says.
//
// WS-R48, WS-R84, WS-R87, WS-R88, WS-R91, WS-R92, WS-R95, WS-R100, WS-R105, WS-R106, WS-P2, WS-P3.
func TestTheBestTierIsPlanned(t *testing.T) {
	const id, other = "aaaaaaaa-0000-4000-8000-000000000001", "bbbbbbbb-0000-4000-8000-000000000002"
	current := func(f *facts) {
		f.current = &holdfast.AgentState{Generation: 1, Runtime: Name, AgentID: id, Health: holdfast.HealthCurrent, Turns: 3, Upto: 30, Call: "c", Box: "b", Boot: "x"}
		f.states = []holdfast.AgentState{*f.current}
		f.completed, f.at = 3, runtime.Box
		f.found = transcriptFacts{began: true, turns: 3, upto: 30, whole: retell.Told{Block: "<all>", Turns: 3, Completed: 3}}
	}
	broken := func(f *facts) {
		f.found.broken = []brokenFile{{cli.Transcripts("/home/agent", "/workspace") + "/" + id + ".jsonl", "the file is empty"}}
	}
	for _, c := range []struct {
		name  string
		facts func(*facts)
		want  holdfast.Tier
		turns int64
		// generation of the agent, health of the one before it, files put aside, and
		// what the reason has in it.
		generation int64
		health     holdfast.AgentHealth
		asides     int
		reason     string
	}{
		{"nothing happened yet", func(*facts) {}, holdfast.TierFresh, 0, 1, "", 0, ""},
		{"only another runtime was there", func(f *facts) {
			f.completed, f.found.whole = 2, retell.Told{Block: "<all>", Turns: 2}
		}, holdfast.TierInjected, 2, 1, "", 0, "no agent of this runtime yet"},
		{"the file is whole", current, holdfast.TierOwn, 3, 1, "", 0, "no process"},
		{"the file is whole, and another runtime went on", func(f *facts) {
			current(f)
			f.completed, f.found.missed = 5, retell.Told{Block: "<two>", Turns: 2}
		}, holdfast.TierOwn, 5, 1, "", 0, ""},
		{"the file is broken", func(f *facts) { current(f); broken(f) }, holdfast.TierRebuilt, 3, 1, "", 1, "is damaged: the file is empty"},
		{"the file is gone", func(f *facts) { current(f); f.found.missing = true }, holdfast.TierRebuilt, 3, 1, "", 0, "gone"},
		{"the file is whole, the log is not", func(f *facts) {
			current(f)
			f.found.lost = errors.New("transcript: an answer is missing")
		}, holdfast.TierOwn, 3, 1, "", 0, ""},
		{"neither is", func(f *facts) {
			current(f)
			broken(f)
			f.found.lost = errors.New("transcript: an answer is missing")
		}, holdfast.TierInjected, 3, 2, holdfast.HealthQuarantined, 1, "cannot be restored from the log: an answer is missing"},
		{"the CLI refuses", func(f *facts) { current(f); f.refused = "No conversation found" }, holdfast.TierInjected, 3, 2, holdfast.HealthQuarantined, 1, "No conversation found"},
		{"it was never given anything", func(f *facts) { current(f); f.found.began = false }, holdfast.TierInjected, 3, 2, holdfast.HealthLeft, 0, "never given"},
		{"it was never given anything, and there is nothing", func(f *facts) {
			current(f)
			f.completed, f.found = 0, transcriptFacts{}
		}, holdfast.TierFresh, 0, 2, holdfast.HealthLeft, 0, ""},
	} {
		var f facts
		c.facts(&f)
		p := planStart(f, other)
		if p.tier != c.want || p.turns != c.turns || p.state.Generation != c.generation || len(p.aside) != c.asides || !strings.Contains(p.reason, c.reason) {
			t.Errorf("%s: %+v", c.name, p)
		}
		if fresh := p.state.AgentID == other; fresh != (p.resume == "") || fresh != (f.current == nil || c.generation == 2) {
			t.Errorf("%s: agent %s resumes %q", c.name, p.state.AgentID, p.resume)
		}
		if (p.tier == holdfast.TierRebuilt) != p.rewrite {
			t.Errorf("%s: rewrites %v", c.name, p.rewrite)
		}
		if told := p.preface != ""; told != (p.tier == holdfast.TierInjected || f.found.missed.Block != "") {
			t.Errorf("%s: tells %q", c.name, p.preface)
		}
		if c.health == "" && len(p.changed) != 0 || c.health != "" && (len(p.changed) != 1 || p.changed[0].Health != c.health || p.changed[0].Call != "" || p.changed[0].Generation != 1) {
			t.Errorf("%s: changes %+v", c.name, p.changed)
		}
		said := c.want == holdfast.TierRebuilt || c.health == holdfast.HealthQuarantined
		if said != (len(p.drafts) == 1 && p.drafts[0].Type == holdfast.EventAgentQuarantined) {
			t.Errorf("%s: records %+v", c.name, p.drafts)
		}
		for _, a := range p.aside {
			if !strings.HasPrefix(a.To, cli.Config("/home/agent")+"/quarantine/1-1/") || !strings.HasPrefix(a.From, cli.Transcripts("/home/agent", "/workspace")) {
				t.Errorf("%s: %+v", c.name, a)
			}
		}
	}
}

// TestACutIsToldWhenItsTurnEndedWithoutAWord: an agent that goes on from its transcript is
// told of a power cut that came after its last prompt, in a turn that ended at once too.
func TestACutIsToldWhenItsTurnEndedWithoutAWord(t *testing.T) {
	prompt := func(uuid string) holdfast.AgentMirrored {
		line := fmt.Sprintf(`{"type":"user","uuid":%q,"parentUuid":null,"message":{"role":"user","content":"x"}}`, uuid)
		return holdfast.AgentMirrored{Generation: 1, File: transcript.Main, Entries: []json.RawMessage{json.RawMessage(line)}}
	}
	cut := holdfast.Notice{Code: holdfast.NoticeFilesAtRisk, Text: "files are gone"}
	for _, c := range []struct {
		name   string
		second []journal.Draft
		told   bool
	}{
		{"after the prompt", []journal.Draft{
			{Type: holdfast.EventMessageUser, Turn: "two", Data: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "second"}}}},
			{Type: holdfast.EventAgentMirrored, Turn: "two", Data: prompt("b")},
			{Type: holdfast.EventNotice, Turn: "two", Data: cut},
			{Type: holdfast.EventTurnFailed, Turn: "two", Data: holdfast.TurnEnded{Message: "the box is gone"}},
		}, true},
		{"between the turns", []journal.Draft{
			{Type: holdfast.EventNotice, Data: cut},
		}, true},
		{"before the prompt, which had it", []journal.Draft{
			{Type: holdfast.EventMessageUser, Turn: "two", Data: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "second"}}}},
			{Type: holdfast.EventNotice, Turn: "two", Data: cut},
			{Type: holdfast.EventAgentMirrored, Turn: "two", Data: prompt("b")},
			{Type: holdfast.EventTurnFailed, Turn: "two", Data: holdfast.TurnEnded{Message: "no"}},
		}, false},
	} {
		h := newTape("x")
		h.log = nil
		_, err := h.Keep(t.Context(), nil, append([]journal.Draft{
			{Type: holdfast.EventMessageUser, Turn: "one", Data: holdfast.UserMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "first"}}}},
			{Type: holdfast.EventAgentMirrored, Turn: "one", Data: prompt("a")},
			{Type: holdfast.EventTurnCompleted, Turn: "one", Data: holdfast.TurnEnded{}},
		}, c.second...)...)
		if err != nil {
			t.Fatal(err)
		}
		f := facts{turn: "three", at: runtime.Box, newest: int64(len(h.log)), current: &holdfast.AgentState{Generation: 1, Runtime: Name, Turns: 1}}
		var x transcriptFacts
		if err := x.readLog(t.Context(), h, f, &transcript.Record{}); err != nil {
			t.Fatal(err)
		}
		missed, err := tell(t.Context(), h, x.upto, f.newest)
		if err != nil || x.upto == 0 || strings.Contains(missed.Prompt(""), cut.Text) != c.told || strings.Contains(missed.Prompt(""), "first") {
			t.Errorf("%s: after #%d: %q, %v", c.name, x.upto, missed.Prompt(""), err)
		}
	}
}
