"""`python -m feedrate.logs --run RUN_DIR --device "{…}" --out RUN_DIR/record.json`: parse_log."""

import argparse
import sys
from pathlib import Path

from feedrate.config.load import ConfigError, convert_text
from feedrate.endings import fail
from feedrate.logs import LogError
from feedrate.logs.assemble import build_record
from feedrate.results.record import write_record
from feedrate.results.settings import DeviceFacts


def main(arguments: list[str] | None = None) -> int:
    """Write the record of one run; 0 whatever became of the run, 1 where none can be made."""
    parser = argparse.ArgumentParser(prog="feedrate.logs", description="Logs of a run to a record.")
    parser.add_argument("--run", type=Path, required=True, help="folder of the run")
    parser.add_argument("--device", required=True, help="its registry entry, a Python literal")
    parser.add_argument("--out", type=Path, required=True, help="the record.json to write")
    options = parser.parse_args(arguments)
    try:
        device = convert_text(options.device, DeviceFacts, "--device")
        write_record(options.out, build_record(options.run, device))
    except (ConfigError, LogError, OSError) as error:
        return fail(parser.prog, error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
