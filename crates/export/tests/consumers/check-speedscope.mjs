// Checks files against speedscope's own schema: node check-speedscope.mjs FILE...
import { readFileSync } from "node:fs";
import Ajv from "ajv";

const schemaPath = new URL("node_modules/speedscope/dist/release/file-format-schema.json", import.meta.url);
const validate = new Ajv({ allErrors: true, strict: false }).compile(JSON.parse(readFileSync(schemaPath, "utf8")));
for (const file of process.argv.slice(2)) {
  if (!validate(JSON.parse(readFileSync(file, "utf8")))) {
    console.error(file, JSON.stringify(validate.errors?.slice(0, 5), null, 2));
    process.exitCode = 1;
  }
}
