package sqlite

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/policy"
)

// BenchmarkPendingApprovals1000 lists 1,000 open questions, among 10,000 that have
// their answer, with inputs of some 200 bytes.
func BenchmarkPendingApprovals1000(b *testing.B) {
	s := openBench(b)
	input := json.RawMessage(`{"command":"` + strings.Repeat("x", 200) + `"}`)
	at := time.Now().Add(time.Hour)
	for n := range 11 {
		id := testID(n)
		if _, err := s.Commit(b.Context(), creation(id)); err != nil {
			b.Fatal(err)
		}
		ask, end := journal.NewChange(id), journal.NewChange(id)
		for i := range 1000 {
			a := holdfast.Approval{
				ID: holdfast.ApprovalID(fmt.Sprintf("01890a5d-ac96-774b-%04x-%012x", n, i)), Session: id, Turn: "turn", ToolUseID: fmt.Sprint("toolu_", i),
				Tool: "Bash", Input: input, InputHash: policy.InputHash(input), By: "mode",
				Reason: `permission mode default does not allow "Bash" by itself`, ExpiresAt: &at,
			}
			ask.Approvals = append(ask.Approvals, journal.ApprovalChange{Ask: &a})
			end.Approvals = append(end.Approvals, journal.ApprovalChange{ID: a.ID, To: holdfast.ApprovalAllowed, By: "owner"})
		}
		for _, c := range []journal.Change{ask, end} {
			if n == 5 && c.Approvals[0].Ask == nil {
				continue
			}
			if _, err := s.Commit(b.Context(), journal.Encoded{Change: c}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ResetTimer()
	for b.Loop() {
		p, err := s.Approvals(b.Context(), journal.ApprovalQuery{State: holdfast.ApprovalPending, Limit: 1000})
		if err != nil || len(p.Approvals) != 1000 || p.Next != "" {
			b.Fatalf("%d, %v", len(p.Approvals), err)
		}
	}
}
