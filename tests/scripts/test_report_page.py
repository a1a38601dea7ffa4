"""The page of a report (scripts/report_page.py), read without a browser: structure, figures, escaping, bad reports."""

import base64
import hashlib
import importlib.util
import json
import re

from support.page_support import PLANTED, Pages, main, plant
from support.report_support import spoiled

import page_tables
import plot_report
import report_file
import report_page

MISSING = [name for name in ("jinja2", "vl_convert") if not importlib.util.find_spec(name)]


def points_of(reader, title_part):
    """Rows of the chart's own table, by the axis title that holds `title_part`."""
    for chart in reader.data()["charts"]:
        if title_part in json.dumps(chart["spec"]):
            table = chart["spec"]["data"]["values"]
            return [dict(zip(table["columns"], row)) for row in table["rows"]]
    return []


class Structure(Pages):
    def test_it_loads_nothing_and_runs_two_scripts(self):
        reader = self.read(self.example("gpu"))
        self.assertEqual(reader.open, [])
        loads = [(tag, name) for tag, attributes in reader.elements for name in attributes
                 if name in ("src", "href", "srcset", "data", "action", "formaction", "poster", "background")]
        self.assertEqual(loads, [])
        for style in reader.styles:
            self.assertNotRegex(style, r"url\(|@import|http")
        kinds = [kind for kind, _ in reader.scripts]
        self.assertEqual(kinds, ["application/json", "", ""])
        policy = next(a["content"] for tag, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy")
        for part in ("default-src 'none'", "base-uri 'none'", "form-action 'none'"):
            self.assertIn(part, policy)
        wanted = ["'sha256-" + base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() + "'"
                  for kind, body in reader.scripts if not kind]
        self.assertEqual(re.findall(r"'sha256-[^']*'", policy), wanted)
        self.assertNotIn("script-src 'unsafe-inline'", policy)

    def test_every_chart_has_its_place_a_title_and_axes_with_words(self):
        reader = self.read(self.example("gpu"))
        places = [a["id"] for _, a in reader.elements if a.get("class") == "chart"]
        charts = reader.data()["charts"]
        self.assertEqual(places, [chart["id"] for chart in charts])
        # Three for the depths; for each of three cases ladder, ratios, distribution, series, clocks.
        self.assertEqual(len(charts), 3 + 3 * 5)
        for chart in charts:
            titles = re.findall(r'"title": "([^"]+)"', json.dumps(chart["spec"]))
            self.assertTrue(titles, chart["id"])

    def test_a_quantised_engine_stands_apart(self):
        self.check_quantised({"precision": "lossy"}, False)
        self.check_quantised({}, True)

    def check_quantised(self, parity, own_weights):
        report = self.example("gpu")
        self.assertNotIn("Quantised", self.read(report).text())
        name = report_file.label_of(report["cases"][0]["engines"][1])
        for case in report["cases"]:
            case["engines"][1]["own_weights"] = own_weights
            case["engines"][1]["parity"] = {**(case["engines"][1]["parity"] or case["engines"][0]["parity"]), **parity}
        reader = self.read(report)
        text = reader.text()
        self.assertEqual(text.count("Quantised engines, ranked with none of the others"), 1)
        rows = text[text.index("Quantised engines"):text.index("No share of the ceiling")
                    if "No share of the ceiling" in text else None]
        self.assertIn(f"{name} (quantised)", rows)
        case = report["cases"][0]
        engine = next(e for e in page_tables.result_rows(case, 0) if e["quantised"])
        self.assertEqual((engine["speedup"], "speedup_verdict" in engine), ("-", False))
        self.assertTrue(any(p["engine"] == f"{name} (quantised)" for p in points_of(reader, '"tokens per second')))

    def test_what_a_format_costs(self):
        report = self.example("gpu")
        self.assertNotIn("What the format costs", self.read(report).text())
        report["cases"][0]["format_cost"] = {
            "original": "whole", "steps": 1200, "kl": 0.01234, "largest_kl": 0.5, "same_top": 0.9375, "limit": 0, "text_steps": 0,
            "original_perplexity": None, "original_perplexity_reason": "no prompt is text", "perplexity": 22.5, "perplexity_reason": ""}
        text = self.read(report).text()
        self.assertEqual(text.count("What the format costs"), 1)
        for words in ("whole", "1,200", "0.01234", "93.8%", "no prompt is text", "22.5 over 0 ids of text"):
            self.assertIn(words, text[text.index("What the format costs"):])

    def test_an_engine_that_is_quicker_where_nobody_looks_is_named(self):
        report = self.example("gpu")
        self.assertNotIn("nobody looks", self.read(report).text())
        engine = report["cases"][0]["engines"][1]
        engine["observed"] = {"caution": "quicker where nobody looks: 1 ms"}
        self.assertIn(f"{report_file.label_of(engine)}: quicker where nobody looks: 1 ms", self.read(report).text())

    def test_figures_are_those_of_the_report(self):
        report = self.example("gpu")
        reader = self.read(report)
        text = reader.text()
        shares, rates = points_of(reader, "% of the ceiling's rate"), points_of(reader, '"tokens per second')
        for case in report["cases"]:
            for engine in case["engines"]:
                at = {"engine": report_file.label_of(engine), "x": case["axes"]["depth"]}
                share, = [p for p in shares if p.items() >= at.items()]
                self.assertAlmostEqual(share["value"], 100 * engine["share"])
                self.assertAlmostEqual(share["low"], 100 * engine["share_ci"]["low"])
                rate, = [p for p in rates if p.items() >= at.items()]
                self.assertEqual((rate["value"], rate["high"]), (engine["tok_per_s"], engine["tok_per_s_ci_high"]))
                self.assertIn(f"{100 * engine['share']:.1f} [", text)
        fastest = report["cases"][0]["comparisons"][0]
        self.assertIn(f"{fastest['speedup']:.2f}x [", text)
        self.assertIn("3 of 3", text)
        # Without an interval both ends are the value.
        for ci, ends in ((None, (2, 2)), ({"low": 1, "high": 3}, (1, 3))):
            row, = page_tables.ratio_rows(report["cases"][0] | {"comparisons": [fastest | {"speedup": 2, "ci": ci}]})
            self.assertEqual((row["value"], row["low"], row["high"]), (2, *ends))
            point = page_tables.point(0, "ring", "engine", 2, (1, 3) if ci else (None, None), "")
            self.assertEqual((point["value"], point["low"], point["high"]), (2, *ends))

    def test_the_speed_up_is_over_the_fastest_baseline(self):
        case = {"engines": [{"name": n, "role": r, "ms_per_tok": ms and {"mean": ms}} for n, r, ms in (
            ("eager", "baseline", 17.0), ("graph", "baseline", 2.4), ("late", "baseline", None), ("ring", "candidate", 0.3))],
            "comparisons": [{"baseline": b, "candidate": "ring", "speedup": s} for b, s in (
                ("eager", 56.7), ("graph", 8.0), ("late", None))]}
        ring = case["engines"][3]
        self.assertEqual(report_file.comparison_of(case, ring)["speedup"], 8.0)
        case["engines"][1]["ms_per_tok"] = None
        self.assertEqual(report_file.comparison_of(case, ring)["speedup"], 56.7)
        case["engines"][0]["ms_per_tok"] = None
        self.assertIsNone(report_file.comparison_of(case, ring))

    def test_scales_and_figures(self):
        charts, points = page_tables.charts, lambda *values: [{"value": v, "low": v, "high": v} for v in values]
        for value, text in ((0, "0"), (1, "1.000"), (9.99949, "9.999"), (0.012347, "0.01235"), (1234.6, "1,235"),
                            (1e-9, "0.000000001")):
            self.assertEqual(charts.digits(value), text)
        self.assertEqual([charts.value_scale(points(1, most))["type"] for most in (8, 8.1)], ["linear", "log"])
        for depths, kind in (([0, 1, 16, 15], "symlog"), ([0, 2, 31, 16], "linear"), ([0, 1, 16], "linear"),
                             ([1, 2, 4, 16], "symlog")):
            self.assertEqual(charts.depth_axis(depths, "x")["scale"]["type"], kind, depths)
        self.assertEqual(charts.log_ticks(points(1.5, 7)), [1, 2, 5, 10])
        for low, high, margin, domain in ((0.9, 1.1, 0.1, (0.8, 1.2)), (0.5, 3, 0.1, (0.5, 3)), (1, 1, 0, (1, 1))):
            rows = [{"key": "a", "low": low, "high": high, "value": 1, "verdict": "SAME", "text": "", "label": ""}]
            axis = charts.ratios(rows, margin)["layer"][3]["encoding"]["x"]
            for found, end in zip(axis["scale"]["domain"], (domain[0] / 1.03, domain[1] * 1.03)):
                self.assertAlmostEqual(found, end)
            self.assertEqual("values" in axis["axis"], domain[1] >= 2.5 * domain[0])

    def test_samples_stand_around_the_median_of_those_that_count(self):
        def sample(ms, **more):
            return {"times": {"host_ms": 2 * ms, "sm_ghz": 1.5}, "tokens": 2, "valid": True, "block": 0} | more

        samples = [sample(1), sample(2, card={"sm_clock_mhz": 1800, "power_w": 7, "temperature_c": 40}), sample(3, process=4),
                   sample(90, dropped_for="heat"), sample(80, valid=False, invalid_reason="late")]
        engine = {"name": "ring", "resolved_name": "ring", "ms_per_tok": {"mean": 2}, "samples": samples, "parity": None}
        rows = page_tables.samples_of({"engines": [engine], "ceiling": {"ms_per_tok": {}, "samples": samples}})
        self.assertEqual([(r["ms"], r["off"], r["clock"], r["dropped"]) for r in rows],
                         [(1, -50, 1.5, ""), (2, 0, 1.8, ""), (3, 50, 1.5, ""), (90, 4400, 1.5, "heat"),
                          (80, 3900, 1.5, "late")])
        self.assertEqual([(r["power"], r["temperature"], r["process"]) for r in rows[:3]],
                         [(None, None, 0), (7, 40, 0), (None, None, 4)])

    def test_samples_are_all_there_once_for_each_case(self):
        report = self.example("gpu")
        data = self.read(report).data()["data"]
        self.assertEqual(len(data), len(report["cases"]))
        for table, case in zip(data.values(), report["cases"]):
            rows = [dict(zip(table["columns"], row)) for row in table["rows"]]
            for engine in case["engines"]:
                mine = [r for r in rows if r["engine"] == report_file.label_of(engine)]
                self.assertEqual([r["ms"] for r in mine],
                                 [round(s["times"]["host_ms"] / s["tokens"], 6) for s in engine["samples"]])
                self.assertEqual({r["clock"] for r in mine}, {1.98})

    def test_several_reports_and_models(self):
        cpu = self.example("cpu")
        reader = self.read(self.example("gpu"), cpu)
        text = reader.text()
        self.assertIn("synthetic: decode, 16 tokens a block", text)
        self.assertIn(f"{cpu['cases'][0]['model']['name']}: decode", text)
        self.assertIn("this is not a GPU result", text)
        ids = [a["id"] for _, a in reader.elements if "id" in a]
        self.assertEqual(len(ids), len(set(ids)))


class Kinds(Pages):
    def test_no_gpu_says_why_there_is_no_share(self):
        report = self.example("cpu")
        reader = self.read(report)
        self.assertIn(f"No share of the ceiling: {report['cases'][0]['ceiling']['reason'] or 'it was not timed'}",
                      reader.text())
        self.assertEqual(points_of(reader, "% of the ceiling's rate"), [])

    def test_an_engine_without_times_says_why_and_is_not_drawn(self):
        report = self.example("gpu")
        for case in report["cases"]:
            engine = case["engines"][1]
            engine.update(verdict="HANG", reasons=["no progress for 10 s"], ms_per_tok=None, tok_per_s=None, share=None)
        reader = self.read(report)
        self.assertIn("No times of megakernel (plain): no progress for 10 s", reader.text())
        self.assertNotIn("megakernel", json.dumps(reader.data()["data"]))
        self.assertNotIn("megakernel", json.dumps(points_of(reader, '"tokens per second')))

    def test_no_engine_with_times_and_no_case(self):
        text = self.read(self.example("empty")).text()
        self.assertIn("This report has no cases.", text)
        report = self.example("failed")
        for case in report["cases"]:
            for engine in case["engines"]:
                engine.update(ms_per_tok=None, tok_per_s=None, share=None)
            case["ceiling"]["ms_per_tok"] = None
            for comparison in case["comparisons"]:
                comparison["speedup"] = None
        reader = self.read(report)
        self.assertEqual(reader.data()["charts"], [])
        self.assertIn("counting: position 5: found 7, wanted 221", reader.text())

    def test_errors_of_a_wrong_engine(self):
        report = self.example("failed")
        case = report["cases"][0]
        parity = case["engines"][1]["parity"]
        label = report_file.label_of(case["engines"][1])

        def errors(*values):
            return [{"at": at + 3, "error": e, "baseline_error": b, "limit": limit} for at, (e, b, limit) in enumerate(values)]

        self.assertEqual(page_tables.failures(case), [])
        parity["error_by_position"] = errors((0.02, 0.05, 0.1), (0, 0.04, None), (None, 0.03, 0.1), (7.5, 0.02, 0.1))
        parity["failed_step"] = {"prompt": "counting", "position": 6, "command": "mkbench parity --only '<counting>:6'",
                                 "error_by_layer": errors((1e-7, 1e-5, 4e-5), (4e-5, 1e-5, 4e-5), (5e-5, 1e-5, 4e-5))}
        reader = self.read(report)
        for words in (f"Errors of {label} by position", f"Errors of {label} by layer", "Prompt 'counting'",
                      "Hidden states at position 6", "Again: mkbench parity --only '<counting>:6'"):
            self.assertIn(words, reader.text())
        parity["facts"], parity["diagnosis"]["text"] = ["right with <1> KV row", "wrong from 2 on"], "no known bug fits"
        self.assertIn("Which bug: no known bug fitsright with <1> KV rowwrong from 2 onAgain:", self.read(report).text())
        self.assertEqual([("open" in a) for tag, a in reader.elements if a.get("class") == "parity"][:2], [True, False])
        self.assertEqual([(p["series"], p["x"], p["value"]) for p in points_of(reader, "2-norm of the error")],
                         [(label, 3, 0.02), (label, 6, 7.5), *(("baseline", 3 + i, (5 - i) / 100) for i in range(4)),
                          *(("limit", x, 0.1) for x in (3, 5, 6))])

        def shown():
            """Where the dotted line of each chart stands, and the ticks of its values."""
            specs = [spec for *_, spec in page_tables.failures(case)]
            rules = [[layer["data"]["values"][0]["at"] for layer in s["layer"] if "data" in layer] for s in specs]
            return rules, [s["layer"][-1]["encoding"]["y"]["axis"]["values"] for s in specs]
        rules, ticks = shown()
        self.assertEqual(rules, [[6], [5]])
        self.assertEqual([[f"{t:.0e}" for t in of] for of in ticks],
                         [["1e-02", "1e-01", "1e+00", "1e+01"], ["1e-07", "1e-06", "1e-05", "1e-04"]])
        parity["failed_step"]["error_by_layer"][0]["error"] = None  # not finite
        self.assertEqual(shown()[0], [[6], [3]])
        parity["failed_step"]["error_by_layer"] = errors((1e-5, 1e-5, 4e-5), (4e-5, 1e-5, 4e-5))
        self.assertEqual(shown()[0], [[6], []])
        for exponent, ticks in ((-8, 9), (-9, 5), (-17, 9), (-18, 7)):
            found = page_tables.charts.decades([10.0**exponent, 1.0])
            self.assertEqual((found[0], len(found)), (10.0**exponent, ticks))
        parity["failed_step"]["error_by_layer"] = errors((1, 0, 0))
        parity["error_by_position"] = []
        self.assertEqual(page_tables.failures(case), [])
        spec = page_tables.charts.errors(errors((0.1, 0.2, None)), label, "position", "error", None)
        self.assertEqual(spec["layer"][0]["encoding"]["color"]["scale"]["domain"], [label, "baseline"])

    def test_a_failure_without_a_figure_says_why(self):
        step, errors = {"position": 6}, [{"at": 6}]
        for parity, why in (({"failed_step": step, "localised": "position 6"}, "this engine shows no logits"),
                            ({"failed_step": step, "localised": "not localised: no room"}, "the step was not repeated"),
                            ({"failed_step": None}, "no single step shows this failure"),
                            ({"failed_step": step, "error_by_position": errors}, "")):
            self.assertEqual(page_tables.no_figure(parity | {"verdict": "FAIL_TOKEN"}), why)
            # A timed step may fail where the prompts have passed.
            told = page_tables.no_figure(parity | {"verdict": "PASS"})
            self.assertEqual(told, why if parity.get("localised") else "")

    def test_a_reason_is_told_once(self):
        report = self.example("failed")
        case = report["cases"][0]
        engine = case["engines"][1]
        reason = engine["parity"]["reason"] = "5 of 9 tokens wrong"
        engine.update(ms_per_tok=None, reasons=[reason, "a hang"], times_withheld=f"FAIL_TOKEN: {reason}")
        case["reasons"] = [f"{engine['name']}: FAIL_TOKEN: {reason}"]
        report["verdict"]["reasons"] = []
        self.assertEqual(self.read(report).text().count(reason), 4)
        report["verdict"]["reasons"] = [f"{case['name']}: {reason}" for reason in case["reasons"]]
        text = self.read(report).text()
        self.assertEqual((text.count(reason), text.count("a hang"), text.count("No times of")), (1, 1, 1))
        engine["reasons"].pop()
        text = self.read(report).text()
        self.assertEqual((text.count(reason), text.count("No times of")), (1, 0))

    def test_an_interrupted_report(self):
        report = self.example("gpu")
        report["verdict"].update(interrupted=True, status="INTERRUPTED", exit_code=130)
        last = report["cases"][-1]
        last.update(interrupted=True, verdict="SKIPPED", engines=[], comparisons=[])
        text = self.read(report).text()
        self.assertIn("The run was interrupted: this report is partial.", text)
        self.assertIn("Interrupted before its end.", text)

    def test_prefill(self):
        report = self.example("diagnosed")
        case = next(c for c in report["cases"] if c["axes"]["n_prompt"] > 0)
        reader = self.read(report)
        self.assertIn("prefill and the first token", reader.text())
        self.assertIn(page_tables.charts.digits(case["engines"][1]["ttft_ms"]), reader.text())
        self.assertTrue(points_of(reader, "ms per prompt id"))

    def test_warnings_and_dropped_samples(self):
        report = self.example("diagnosed")
        report["meta"]["warnings"] = ["the card is warm"]
        reader = self.read(report)
        self.assertIn("the card is warm", reader.text())
        table = reader.data()["data"]["samples-0"]
        dropped = [s["dropped_for"] for e in report["cases"][0]["engines"] for s in e["dropped_samples"]]
        self.assertTrue(dropped)
        self.assertEqual([row[table["columns"].index("dropped")] for row in table["rows"]
                          if row[table["columns"].index("dropped")]], dropped)

    def test_long_parity_tables_keep_every_row_that_differs(self):
        report = self.example("gpu")
        parity = report["cases"][0]["engines"][1]["parity"]
        parity["rows"] = [{**parity["rows"][0], "pos": i} for i in range(2000)]
        parity["rows"][1500] |= {"match": "WRONG", "mk_id": 987654}
        text = self.read(report).text()
        self.assertIn("251 of 2000 rows", text)
        self.assertIn("987654", text)

    def test_engines_from_files_have_short_names(self):
        report = self.example("gpu")
        for case in report["cases"]:
            for engine, name in zip(case["engines"], ("/far/away/one.so", "/far/away/two.so")):
                engine.update(name=name, resolved_name=f"it@{name[10:]}")
        reader = self.read(report)
        self.assertIn(" it@one.so ", reader.text())
        self.assertNotIn("/far/away", json.dumps(reader.data()))


class Hostile(Pages):
    def test_text_of_a_report_stays_text(self):
        for kind in ("gpu", "failed"):
            reader = self.read(plant(self.example(kind)))
            self.assertEqual([tag for tag, _ in reader.elements if tag in ("img", "script")], ["script"] * 3, kind)
            self.assertEqual([a for _, a in reader.elements if any(name.startswith("on") for name in a)], [], kind)
            self.assertGreater(reader.text().count(PLANTED), 15, kind)
            self.assertTrue(any(PLANTED in row[0] for row in reader.data()["data"]["samples-0"]["rows"]), kind)

    def test_nothing_planted_becomes_an_expression(self):
        """Vega compiles what stands in expr, signal, test, calculate, filter, labelExpr; they hold our text alone."""
        def expressions(node):
            for key, inner in node.items() if isinstance(node, dict) else enumerate(node):
                if key in ("expr", "signal", "test", "calculate", "filter", "labelExpr", "href", "url"):
                    yield json.dumps(inner)
                elif isinstance(inner, (dict, list)):
                    yield from expressions(inner)

        found = set()
        for chart in self.read(plant(self.example("diagnosed"))).data()["charts"]:
            found |= set(expressions(chart["spec"]))
        self.assertGreater(len(found), 4)
        self.assertEqual([text for text in found if "planted" in text], [])

    def test_malformed_values_never_trace_back(self):
        """Every value of a report, replaced by values that it cannot have."""
        good = self.example("gpu")
        good["cases"] = good["cases"][:1]
        for engine in good["cases"][0]["engines"]:
            engine["samples"] = engine["samples"][:2]
        good["cases"][0]["ceiling"]["samples"] = good["cases"][0]["ceiling"]["samples"][:2]
        draw = report_page.template()
        tried = refused = 0
        for changed in spoiled(good):
            tried += 1
            try:
                plot_report.collect([changed])
                report_page.fill(draw, [changed], ["report.json"], ["", ""])
            except report_file.INCOMPLETE:
                refused += 1
        self.assertGreater(tried, 1500)
        self.assertGreater(refused, 300)

    def test_bad_reports_are_refused_in_one_line(self):
        for program in ("report_page", "plot_report"):
            for text, wanted in (("", "not JSON"),
                                 ('{"schema": {"id": "mkbench.report", "version": "1.0.0"}}', "not a complete report")):
                done = self.make(text, name="bad", program=program)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
                self.assertIn(wanted, done.stderr)
                self.assertIn("bad-0.json", done.stderr)
        for part, field in (("engines", "tok_per_s"), ("comparisons", "margin")):
            report = self.example("gpu")
            report["cases"][0][part][0][field] = float("nan")
            done = self.make(report, name="nan")
            self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), (field, done.stderr))
            self.assertFalse((self.folder / "nan.html").exists())

    def test_a_page_that_cannot_be_written(self):
        (self.folder / "file").write_text("")
        done = self.make(self.example("gpu"), out="file/page.html")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("file/page.html", done.stderr)


class Making(Pages):
    def test_a_missing_module_is_said_in_one_line(self):
        report = self.example("gpu")
        for name in ("jinja2", "vl_convert"):
            modules = self.folder / name
            modules.mkdir()
            (modules / f"{name}.py").write_text(f"raise ImportError('left out for a test', name='{name}')\n")
            done = self.make(report, env={"PYTHONPATH": str(modules), "XDG_CACHE_HOME": str(self.folder / "cache")})
            self.assertEqual((done.returncode, done.stderr), (1, f"report_page: no {name}: left out for a test\n"))
            self.assertFalse((self.folder / "page.html").exists())

    def test_the_library_is_packed_once(self):
        """The second page needs no packing, and is no larger than a mail takes."""
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache")}
        first = self.make(self.example("gpu"), name="first", env=cache)
        self.assertEqual(first.returncode, 0, first.stderr)
        kept, = (self.folder / "cache" / "mkbench").iterdir()
        self.assertRegex(kept.name, r"^vega-[0-9a-z.]+-[0-9.]+\.js$")
        modules = self.folder / "modules"
        modules.mkdir()
        (modules / "vl_convert.py").write_text("raise ImportError('it is not asked for')\n")
        second = self.make(self.example("gpu"), name="second", env={**cache, "PYTHONPATH": str(modules)})
        self.assertEqual((second.returncode, second.stderr), (0, ""))
        pages = [(self.folder / f"{name}.html").read_text() for name in ("first", "second")]
        self.assertEqual(*pages)
        self.assertLess(len(pages[0]), 2_000_000)

    def test_a_cache_that_cannot_be_written_is_done_without(self):
        (self.folder / "blocked").write_text("")
        done = self.make(self.example("gpu"), env={"XDG_CACHE_HOME": str(self.folder / "blocked")})
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    main("no " + " and no ".join(MISSING) if MISSING else "")
