package main

import (
	"cmp"
	"fmt"

	"github.com/holdfast-run/holdfast/internal/config"
)

type configCmd struct {
	List      configListCmd      `cmd:"" help:"List all settings with their defaults."`
	Explain   configExplainCmd   `cmd:"" help:"Say what a setting means, or those of a group."`
	Effective configEffectiveCmd `cmd:"" help:"Show what a server would be started with, and where each value comes from."`
}

type configListCmd struct{}

// Run lists the settings.
func (*configListCmd) Run(e *env) error {
	all := config.Settings()
	if e.json {
		return e.print(map[string]any{"settings": all})
	}
	var rows [][]string
	for _, s := range all {
		rows = append(rows, []string{s.Name, s.Default, s.Values})
	}
	return e.table([]string{"SETTING", "DEFAULT", "VALUES"}, rows)
}

type configExplainCmd struct {
	Names []string `arg:"" name:"setting" help:"Settings, or groups of them, as limits."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*configExplainCmd) Help() string {
	return "Examples:\n  holdfast config explain default_model\n  holdfast config explain limits"
}

// Run explains settings.
func (c *configExplainCmd) Run(e *env) error {
	var found []config.Setting
	for _, name := range c.Names {
		some, err := config.Explain(name)
		if err != nil {
			return err
		}
		found = append(found, some...)
	}
	if e.json {
		return e.print(map[string]any{"settings": found})
	}
	for i, s := range found {
		if i > 0 {
			fmt.Fprintln(e.stdout)
		}
		where := "in the file of --config"
		if s.Env != "" {
			where = fmt.Sprintf("with: --set %s=… or %s, or in the file of --config", s.Name, s.Env)
		}
		fmt.Fprintf(e.stdout, "%s%s%s\n  %s\n  values: %s\n  default: %s\n  set it %s\n",
			e.style(bold), s.Name, e.style(reset), s.Doc, s.Values, cmp.Or(s.Default, "none"), where)
	}
	return nil
}

type configEffectiveCmd struct {
	Config string   `placeholder:"FILE" help:"Settings as YAML, as for serve."`
	Data   string   `placeholder:"DIR" help:"Data directory, as for serve."`
	Set    []string `placeholder:"KEY=VALUE" sep:"none" help:"Any other setting, as for serve; repeatable."`
	All    bool     `help:"Show the settings that have their defaults, too."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*configEffectiveCmd) Help() string {
	return "Reads what serve would read in this shell. A server that runs may have been started from another one: holdfast doctor shows that.\n\nExample:\n  holdfast config effective --config /etc/holdfast.yaml"
}

// Run shows the configuration.
func (c *configEffectiveCmd) Run(e *env) error {
	flags, err := (&serveCmd{Data: c.Data, Set: c.Set}).flags()
	if err != nil {
		return err
	}
	all, err := config.Effective(config.Source{File: c.Config, Getenv: e.getenv, Flags: flags})
	if err != nil {
		return err
	}
	shown := []config.Value{}
	for _, v := range all {
		if c.All || v.From != config.FromDefault {
			shown = append(shown, v)
		}
	}
	if e.json {
		return e.print(map[string]any{"settings": shown})
	}
	var rows [][]string
	for _, v := range shown {
		rows = append(rows, []string{v.Name, v.Value, v.From})
	}
	if err := e.table([]string{"SETTING", "VALUE", "FROM"}, rows); err != nil {
		return err
	}
	if left := len(all) - len(shown); left > 0 {
		e.note("%s: --all shows them", count(left, "other setting has its default", "other settings have their defaults"))
	}
	return nil
}
