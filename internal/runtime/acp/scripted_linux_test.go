package acp_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/acp"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestScriptedAgentContract: an agent without a provider, a network or a package from
// elsewhere keeps the contract, at every point.
func TestScriptedAgentContract(t *testing.T) {
	program := testkit.Program(t, "./internal/runtime/runtimetest/scriptedagent")
	dir := filepath.Dir(program)
	runtimetest.Run(t, runtimetest.Config{
		New: func(t *testing.T) runtime.Runtime {
			r, err := acp.New(acp.Config{Now: time.Now, Profile: acp.Profile{
				Name: "scripted", State: ".scripted",
				Find: func(holdfast.Trust) (acp.Program, error) {
					return acp.Program{Argv: []string{"/opt/holdfast/" + filepath.Base(program)}, Version: "1"}, nil
				},
			}})
			if err != nil {
				t.Fatal(err)
			}
			return r
		},
		InBox: true, Runtime: "acp:scripted", Boxes: boxes(dir), UID: suiteUID,
		Exempt: map[string]string{
			"Works": "the protocol does not say where an answer of the model ends, so steps cannot be counted; TestTurnsOfOneProcess",
			"Fails": "its error names no kind; TestBadAgents",
		},
	})
}
