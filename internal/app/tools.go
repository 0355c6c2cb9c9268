package app

import (
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/policy"
)

// Tools returns the tools that the runtimes of this server offer to agents besides the standard
// ones. Every offered tool must be among them: any other is denied in every mode, and no rule
// can name it.
func Tools() []policy.Tool { return cli.Offered() }
