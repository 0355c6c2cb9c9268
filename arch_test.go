package holdfast_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func readSource(name string) ([]byte, error) { return os.ReadFile(name) }

// layer says what a package may import besides the standard library: packages
// of this module by directory ("dir/..." for a tree), and other modules.
type layer struct {
	use   string
	third string
}

// layers is the import table of the module. A package without a row fails.
// Tests may import more: see TestTestsImportKnownModules.
var layers = map[string]layer{
	".": {},

	// Public packages.
	"policy":                       {use: ". sandbox/check"},
	"hook":                         {use: ". policy sandbox internal/clip internal/clock", third: "golang.org/x/sys/unix"},
	"agent":                        {use: ". hook policy sandbox agent/model agent/tool internal/loop"},
	"agent/model":                  {use: "."},
	"agent/model/remote":           {use: ". agent/model internal/clip"},
	"agent/model/anthropic":        {use: ". agent/model agent/model/remote", third: "github.com/anthropics/anthropic-sdk-go/..."},
	"agent/model/openai":           {use: ". agent/model agent/model/remote internal/sse"},
	"agent/model/modeltest":        {use: ". agent/model", third: "github.com/google/go-cmp/cmp"},
	"agent/model/scripted":         {use: ". agent/model internal/clock"},
	"agent/tool":                   {use: ". sandbox"},
	"agent/tool/builtin":           {use: ". sandbox agent/tool sandbox/wire"},
	"sandbox":                      {use: ". sandbox/wire", third: "github.com/hashicorp/yamux"},
	"sandbox/check":                {use: ". sandbox/check/usage", third: "mvdan.cc/sh/..."},
	"sandbox/check/usage":          {},
	"sandbox/sandboxtest":          {use: ". sandbox sandbox/wire", third: "golang.org/x/sys/unix"},
	"client":                       {use: ". internal/clock internal/shellword internal/sse", third: "github.com/coder/websocket"},
	"sandbox/wire":                 {use: ".", third: "github.com/hashicorp/yamux"},
	"internal/tree":                {use: ".", third: "golang.org/x/sys/unix"},
	"internal/boxd":                {use: ". internal/boxd/... internal/durable internal/trim sandbox/wire", third: "github.com/hashicorp/yamux golang.org/x/sys/unix"},
	"internal/boxd/paths":          {third: "golang.org/x/sys/unix"},
	"internal/boxd/mark":           {third: "golang.org/x/sys/unix"},
	"internal/boxd/modes":          {use: ".", third: "golang.org/x/sys/unix"},
	"internal/boxd/pattern":        {use: "."},
	"internal/boxd/files":          {use: ". internal/boxd/... internal/tree sandbox/wire", third: "golang.org/x/sys/unix"},
	"internal/boxd/jail":           {use: ". internal/boxd/... sandbox/wire", third: "golang.org/x/sys/unix"},
	"sandbox/boxd":                 {use: ". internal/durable"},
	"cmd/boxd":                     {use: ". internal/boxd/... sandbox/wire", third: "golang.org/x/sys/unix"},
	"cmd/holdfast":                 {use: ". client sandbox sandbox/check internal/acpserver internal/agentcli internal/agents internal/app internal/audit internal/backup internal/bench sandbox/boxd internal/chat internal/checks internal/child internal/config internal/demo internal/double internal/durable internal/httpapi/problem internal/lifecycle internal/mcpserver internal/obs internal/plain internal/replay internal/settings internal/shellword internal/torture internal/tree policy", third: "github.com/alecthomas/kong golang.org/x/term"},
	"internal/config":              {use: ". hook internal/boxd/pattern policy sandbox sandbox/check", third: "github.com/goccy/go-yaml"},
	"internal/durable":             {},
	"internal/clip":                {use: "."},
	"internal/clock":               {},
	"internal/sse":                 {},
	"internal/shellword":           {},
	"internal/lifecycle":           {use: ". internal/durable", third: "golang.org/x/sys/unix"},
	"internal/obs":                 {use: "."},
	"internal/rooted":              {use: ". internal/durable", third: "golang.org/x/sys/unix"},
	"internal/journal":             {use: "."},
	"internal/runtime":             {use: ". agent/model hook internal/folder internal/journal policy sandbox internal/conversation"},
	"internal/judging":             {use: ". internal/durable"},
	"internal/boots":               {use: ". internal/journal", third: "golang.org/x/sys/unix"},
	"internal/conversation":        {use: "."},
	"internal/account":             {use: ". internal/conversation"},
	"internal/versions":            {use: "."},
	"internal/unsaved":             {use: "."},
	"internal/snapshot/pack":       {use: ". internal/durable", third: "github.com/klauspost/compress/zstd github.com/zeebo/blake3"},
	"internal/trim":                {third: "golang.org/x/sys/unix"},
	"internal/retell":              {use: ". hook internal/conversation internal/clip"},
	"internal/models":              {use: ". agent/model"},
	"internal/replay":              {use: ". policy"},
	"internal/folder":              {use: ". internal/rooted internal/clip"},
	"internal/hostgit":             {use: "."},
	"internal/settings":            {use: ". hook internal/hostgit internal/rooted policy sandbox/check", third: "github.com/goccy/go-yaml/..."},
	"internal/loop":                {use: ". hook policy sandbox agent/model agent/tool internal/clock internal/clip"},
	"internal/jsonrpc":             {},
	"internal/mcpserver":           {use: ". internal/conversation internal/jsonrpc internal/clip internal/clock", third: "github.com/modelcontextprotocol/go-sdk/mcp github.com/google/jsonschema-go/jsonschema"},
	"internal/acpserver":           {use: ". internal/conversation internal/jsonrpc internal/plain internal/rooted internal/clock internal/clip policy", third: "github.com/coder/acp-go-sdk"},
	"internal/agents":              {use: ". internal/durable internal/folder internal/rooted internal/settings internal/versions policy internal/clip internal/tree", third: "golang.org/x/sys/unix"},
	"internal/engine":              {use: ". hook internal/account internal/approvals internal/boots internal/branch internal/choices internal/conversation internal/direct internal/folder internal/hooked internal/hostgit internal/journal internal/judging internal/lease internal/lifetime internal/network internal/oldest internal/pending internal/permit internal/place internal/pool internal/resume internal/rooted internal/runtime internal/settings internal/stages internal/views internal/watchdog policy sandbox sandbox/check sandbox/wire internal/obs"},
	"internal/permit":              {use: ". internal/journal internal/pending internal/versions policy sandbox sandbox/check sandbox/wire"},
	"internal/approvals":           {use: ". internal/journal internal/judging policy"},
	"internal/choices":             {use: ". internal/direct internal/journal internal/network"},
	"internal/hooked":              {use: ". hook internal/journal internal/pending internal/pool internal/versions policy sandbox sandbox/wire"},
	"internal/lease":               {use: ". internal/pool policy sandbox"},
	"internal/lifetime":            {use: "."},
	"internal/network":             {use: ". internal/journal policy sandbox sandbox/check sandbox/wire"},
	"internal/oldest":              {use: "."},
	"internal/pending":             {use: ". internal/journal"},
	"internal/resume":              {use: ". internal/journal internal/clock"},
	"internal/stages":              {use: ". internal/journal"},
	"internal/views":               {use: ". internal/journal"},
	"internal/watchdog":            {},
	"internal/direct":              {use: ". sandbox sandbox/wire"},
	"internal/workspaces":          {use: ". internal/durable internal/journal internal/rooted", third: "github.com/goccy/go-yaml/... golang.org/x/sys/unix"},
	"internal/checks":              {use: ". internal/config internal/lifecycle internal/rooted sandbox", third: "golang.org/x/sys/unix"},
	"internal/place":               {use: ". internal/clock internal/workspaces internal/journal internal/pool internal/resume internal/rooted policy sandbox sandbox/wire", third: "golang.org/x/sync/errgroup golang.org/x/sync/semaphore"},
	"internal/backup":              {use: ". internal/durable internal/rooted", third: "filippo.io/age github.com/klauspost/compress/zstd"},
	"internal/branch":              {use: ". internal/conversation internal/journal"},
	"internal/snapshot":            {use: ". internal/boxd/pattern internal/clock internal/durable internal/journal internal/rooted internal/snapshot/... internal/stages sandbox/wire internal/gitpatch"},
	"internal/snapshot/collect":    {use: ". internal/journal internal/snapshot/pack internal/snapshot/tree"},
	"internal/snapshot/edit":       {use: ". internal/durable internal/rooted"},
	"internal/snapshot/ignore":     {use: ". internal/boxd/pattern internal/durable internal/rooted"},
	"internal/snapshot/coded":      {use: ". internal/journal"},
	"internal/snapshot/background": {third: "golang.org/x/sys/unix"},
	"internal/snapshot/later":      {use: ". internal/journal"},
	"internal/snapshot/recall":     {use: "internal/journal internal/snapshot/statcache"},
	"internal/snapshot/told":       {use: ". internal/gitpatch"},
	"internal/snapshot/statcache":  {use: "internal/rooted internal/snapshot/pack"},
	"internal/snapshot/tree":       {use: ". internal/boxd/mark internal/gitpatch internal/rooted internal/snapshot/pack internal/snapshot/statcache"},
	"internal/gitpatch":            {use: ".", third: "github.com/aymanbagabas/go-udiff/lcs github.com/klauspost/compress/zlib"},
	"internal/trees":               {use: "internal/place internal/rooted"},
	"internal/pool":                {use: ". sandbox sandbox/wire internal/clock", third: "golang.org/x/sync/errgroup"},
	"internal/seal":                {use: ". internal/durable"},
	"internal/agentcli":            {use: ". internal/durable"},
	"internal/keys":                {use: "."},
	"internal/audit":               {use: "."},
	"internal/auditlog":            {use: ". internal/audit internal/seal"},
	"internal/secrets":             {use: "."},
	"internal/egress/meter":        {use: "."},
	"internal/egress":              {use: ". agent/model agent/model/remote internal/egress/meter internal/journal internal/runtime sandbox/check internal/clock"},
	"internal/webhook":             {use: ". internal/journal", third: "github.com/standard-webhooks/standard-webhooks/libraries/go"},
	"internal/testkit":             {use: ". internal/agentcli"},
	"internal/testkit/powercut":    {use: "internal/testkit", third: "golang.org/x/sys/unix"},
	"internal/chat/compose":        {use: "internal/plain", third: "github.com/charmbracelet/x/ansi"},
	"internal/chat":                {use: ". client internal/chat/back internal/chat/compose internal/plain internal/clock internal/clip", third: "charm.land/bubbletea/v2 charm.land/lipgloss/v2 github.com/charmbracelet/x/ansi"},
	"internal/chat/back":           {use: ". client internal/plain"},
	"internal/child":               {use: ". client"},
	"internal/demo":                {use: ". client internal/child internal/clock"},
	"internal/double":              {use: ". agent/model agent/model/scripted internal/clip"},
	"internal/pipetest":            {},
	"internal/plain":               {use: ". internal/conversation"},
	"internal/image":               {use: "."},
	"internal/trash":               {use: ". internal/journal"},
	"internal/torture":             {use: ". client internal/child internal/clock internal/image"},
	"internal/bench":               {use: ". internal/child internal/image internal/double internal/journal internal/pool internal/retell internal/store/sqlite internal/driver/local sandbox/boxd sandbox/wire sandbox internal/conversation internal/clock", third: "golang.org/x/sync/errgroup golang.org/x/sys/unix"},
	"internal/app":                 {use: "* internal/clock", third: "golang.org/x/net/netutil golang.org/x/sync/... golang.org/x/sys/unix"},
	"internal/app/apptest":         {use: ". internal/app internal/config internal/driver/mem sandbox"},
	"internal/driver/boxproc":      {use: ". internal/durable sandbox sandbox/wire sandbox/boxd internal/clock", third: "golang.org/x/sys/unix"},

	// The escape suite.
	"sandbox/sandboxtest/escape": {use: ". sandbox sandbox/wire internal/pool internal/rooted", third: "golang.org/x/sys/unix"},

	// Adapters: leaves that only app knows.
	"internal/store/sqlite":              {use: ". internal/audit internal/journal internal/webhook internal/store/sqlite/..."},
	"internal/store/sqlite/wal":          {third: "modernc.org/libc modernc.org/sqlite modernc.org/sqlite/lib"},
	"internal/store/sqlite/db":           {use: ". internal/durable internal/clock internal/store/sqlite/wal", third: "modernc.org/sqlite modernc.org/sqlite/lib github.com/pressly/goose/v3"},
	"internal/store/sqlite/search":       {use: ". internal/conversation internal/journal internal/store/sqlite/db internal/clip"},
	"internal/store/sqlite/checkpoints":  {use: ". internal/journal internal/store/sqlite/db"},
	"internal/store/sqlite/admin":        {use: ". internal/audit internal/journal internal/keys internal/secrets internal/workspaces internal/store/sqlite/db"},
	"internal/store/sqlite/schema":       {use: ".", third: "github.com/pressly/goose/v3"},
	"internal/store/storetest":           {use: ". internal/journal internal/engine internal/keys internal/audit internal/webhook internal/approvals internal/boots internal/trash internal/views internal/workspaces policy", third: "pgregory.net/rapid"},
	"internal/driver/local":              {use: ". internal/durable sandbox sandbox/wire sandbox/boxd internal/boxd/jail internal/boxd/mark internal/driver/boxproc internal/driver/roottree internal/rooted internal/clock", third: "golang.org/x/sys/unix"},
	"internal/driver/roottree":           {use: ". sandbox internal/rooted", third: "golang.org/x/sys/unix"},
	"internal/driver/host":               {use: ". sandbox sandbox/wire sandbox/boxd internal/driver/boxproc", third: "golang.org/x/sys/unix"},
	"internal/driver/mem":                {use: ". sandbox internal/boxd internal/boxd/files sandbox/wire", third: "mvdan.cc/sh/v3/..."},
	"internal/runtime/native":            {use: ". hook internal/folder internal/runtime internal/journal internal/loop policy sandbox agent/model agent/tool agent/tool/builtin sandbox/wire internal/conversation internal/clip"},
	"internal/runtime/claude/transcript": {use: "."},
	"internal/runtime/resident":          {use: ". hook internal/journal policy sandbox sandbox/wire internal/clip internal/clock"},
	"internal/runtime/acp":               {use: ". internal/conversation internal/jsonrpc internal/retell internal/runtime internal/runtime/resident policy sandbox/wire internal/clip internal/clock internal/shellword", third: "github.com/coder/acp-go-sdk"},
	"internal/runtime/claude/cli":        {use: ". internal/folder policy"},
	"internal/runtime/claude":            {use: ". agent/tool hook internal/conversation internal/folder internal/journal internal/jsonrpc internal/retell internal/runtime internal/runtime/claude/cli internal/runtime/claude/transcript internal/runtime/resident policy sandbox sandbox/wire internal/clock internal/clip"},
	"internal/runtime/runtimetest":       {use: ". internal/runtime internal/journal internal/driver/mem policy sandbox internal/conversation"},
	"internal/httpapi":                   {use: ". internal/clock internal/conversation internal/journal internal/unsaved internal/httpapi/...", third: "github.com/danielgtaylor/huma/v2/... github.com/coder/websocket"},
	"internal/httpapi/body":              {use: ".", third: "github.com/danielgtaylor/huma/v2"},
	"internal/httpapi/guard":             {use: ". internal/journal internal/httpapi/body internal/httpapi/problem internal/obs", third: "golang.org/x/sync/semaphore golang.org/x/time/rate"},
	"internal/httpapi/problem":           {use: ".", third: "github.com/danielgtaylor/huma/v2/..."},
	"internal/httpapi/socket":            {use: ". internal/clock internal/unsaved", third: "github.com/coder/websocket"},
	"internal/httpapi/spec":              {use: ". internal/httpapi/problem policy", third: "github.com/danielgtaylor/huma/v2/..."},
	"internal/httpapi/stream":            {use: ". internal/journal internal/httpapi/problem"},

	// An agent that tests put into boxes.
	"internal/runtime/runtimetest/scriptedagent": {use: ". agent/model agent/model/scripted"},
}

// adapters know nothing of each other nor of the engine.
var adapters = []string{
	"internal/httpapi", "internal/store/sqlite", "internal/driver/local", "internal/driver/host",
	"internal/driver/mem", "internal/runtime/native", "internal/runtime/claude", "internal/runtime/acp",
}

// testModules may be imported by tests of any package.
var testModules = []string{
	"github.com/google/go-cmp/...", "github.com/rogpeppe/go-internal/...", "go.uber.org/goleak",
	"pgregory.net/rapid", "github.com/elastic/go-seccomp-bpf/...", "github.com/coder/acp-go-sdk", "github.com/modelcontextprotocol/go-sdk/mcp", "golang.org/x/sys/unix", "golang.org/x/net/bpf",
	"github.com/standard-webhooks/standard-webhooks/libraries/go",
}

func allowed(list, name string) bool {
	for _, p := range strings.Fields(list) {
		tree, isTree := strings.CutSuffix(p, "/...")
		if p == "*" || p == name || isTree && (name == tree || strings.HasPrefix(name, tree+"/")) {
			return true
		}
	}
	return false
}

// WS-R9.
func TestLayers(t *testing.T) {
	found := packages(t)
	for dir, files := range found {
		row, ok := layers[dir]
		if !ok {
			t.Errorf("package %s has no row in the layer table of arch_test.go", dir)
			continue
		}
		for _, s := range files {
			for _, imported := range s.imports() {
				switch in, ours := local(imported); {
				case ours && !allowed(row.use, in):
					t.Errorf("%s imports %s, which the row of %s does not allow", s.name, in, dir)
				case !ours && !std(imported) && !allowed(row.third, imported):
					t.Errorf("%s imports %s, which the row of %s does not allow", s.name, imported, dir)
				}
			}
		}
	}
	for dir := range layers {
		if _, ok := found[dir]; !ok {
			t.Errorf("the layer table has a row for %s, which does not exist", dir)
		}
	}
}

func TestAdaptersAreLeaves(t *testing.T) {
	found := packages(t)
	for _, dir := range adapters {
		for _, s := range found[dir] {
			for _, imported := range s.imports() {
				in, ours := local(imported)
				if !ours || in == dir {
					continue
				}
				if in == "internal/engine" || slices.Contains(adapters, in) {
					t.Errorf("adapter %s imports %s", s.name, in)
				}
			}
		}
	}
	for dir, files := range found {
		// bench measures the parts that app would wire.
		if dir == "internal/app" || dir == "internal/bench" || suites[dir] {
			continue
		}
		for _, s := range files {
			for _, imported := range s.imports() {
				if in, ours := local(imported); ours && slices.Contains(adapters, in) {
					t.Errorf("%s imports the adapter %s: only app may", s.name, in)
				}
			}
		}
	}
}

// TestHZ1_BoxdLinksNothingOfTheServer follows every import that ends up in the
// program of the box, test and generator files aside.
func TestHZ1_BoxdLinksNothingOfTheServer(t *testing.T) {
	found := packages(t)
	const ours = ". cmd/boxd internal/boxd internal/boxd/... internal/durable internal/trim internal/tree sandbox/wire"
	const third = "github.com/hashicorp/yamux golang.org/x/sys/unix"
	for dir, files := range found {
		if !allowed("cmd/boxd internal/boxd internal/boxd/... internal/durable internal/trim internal/tree sandbox/wire", dir) {
			continue
		}
		for _, s := range files {
			if strings.Contains(strings.Join(s.text[:min(10, len(s.text))], "\n"), "//go:build ignore") {
				continue
			}
			for _, imported := range s.imports() {
				switch in, isOurs := local(imported); {
				case isOurs && (!allowed(ours, in) || in == "sandbox/boxd" && dir != in):
					t.Errorf("%s imports %s", s.name, in)
				case !isOurs && !std(imported) && !allowed(third, imported):
					t.Errorf("%s imports %s", s.name, imported)
				case imported == "os/exec" || imported == "net/http" || imported == "reflect" && dir == "cmd/boxd":
					t.Errorf("%s imports %s: boxd forks through its own thread and speaks its own protocol", s.name, imported)
				}
			}
		}
	}
}

// TestHZ1_BoxdDependencies asks the toolchain for what is really linked.
func TestHZ1_BoxdDependencies(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./cmd/boxd")
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	const want = "github.com/hashicorp/yamux golang.org/x/sys/..."
	n := 0
	for _, p := range strings.Fields(string(out)) {
		n++
		if in, ok := local(p); ok && allowed(". cmd/boxd internal/boxd internal/boxd/... internal/durable internal/trim internal/tree sandbox/wire", in) {
			continue
		}
		if !allowed(want, p) {
			t.Errorf("boxd links %s", p)
		}
	}
	if n < 3 {
		t.Errorf("go list named %d packages: %s", n, out)
	}
}

// TestProgramLinksNoTestPart asks the toolchain for the packages of the released program: neither
// mem, the driver that imitates boxes, nor a suite is among them.
func TestProgramLinksNoTestPart(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./cmd/holdfast").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	linked := strings.Fields(string(out))
	if !slices.Contains(linked, module+"/internal/driver/local") {
		t.Fatalf("go list named %d packages, and not the driver local", len(linked))
	}
	for _, p := range linked {
		if in, ours := local(p); ours && (allowed("internal/driver/mem/...", in) || suites[in]) {
			t.Errorf("cmd/holdfast links %s, which is for tests", in)
		}
	}
}

func TestTestsImportKnownModules(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test && !s.suite() {
			continue
		}
		list := strings.Join(testModules, " ") + " " + layers[s.pkg].third
		for _, imported := range s.imports() {
			if _, ours := local(imported); !ours && !std(imported) && !allowed(list, imported) {
				t.Errorf("%s imports %s", s.name, imported)
			}
		}
	}
}

// TestImportDepth bounds the longest chain of imports within the module. The vocabulary
// lies at the bottom of every chain and does not count, and neither do the tables of
// programs, which import nothing.
func TestImportDepth(t *testing.T) {
	const most = 6
	found := packages(t)
	chains := map[string][]string{}
	var longest func(dir string) []string
	longest = func(dir string) []string {
		if c, ok := chains[dir]; ok {
			return c
		}
		var best []string
		for _, s := range found[dir] {
			for _, imported := range s.imports() {
				if in, ours := local(imported); ours && in != "." && in != "sandbox/check/usage" {
					if c := longest(in); len(c) > len(best) {
						best = c
					}
				}
			}
		}
		chains[dir] = append([]string{dir}, best...)
		return chains[dir]
	}
	for dir := range found {
		if c := longest(dir); len(c)-1 > most {
			t.Errorf("%d imports deep, %d allowed: %s", len(c)-1, most, strings.Join(c, " → "))
		}
	}
}
